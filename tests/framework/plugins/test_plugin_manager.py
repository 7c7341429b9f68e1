"""Plugins: found, checked, named if broken; the others load."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from msgspec import Struct

from fencepost import (
    NOTHING,
    Applicability,
    Clause,
    EnvironmentFailed,
    Event,
    FaultFactory,
    Findings,
    KnownFinding,
    Promise,
    Rule,
    Seen,
    UsageError,
    Workload,
    hookimpl,
    no_such,
    on,
)
from fencepost.plugins.manager import PluginWarning, load, load_from
from fencepost.plugins.reports import ReportRequest


class Sneezed(Struct, frozen=True, tag="nose.sneezed"):
    """A plugin's own kind."""

    times: int


class Untagged(Struct, frozen=True):
    """A kind that no line could carry."""


def module(**hooks: object) -> ModuleType:
    """A plugin with these functions."""
    made = ModuleType("made")
    vars(made).update(hooks)
    return made


def plugin(**answers: object) -> ModuleType:
    """A plugin whose hooks answer with the given values."""
    return module(
        **{
            f"fencepost_{name}": hookimpl(lambda value=value: value)
            for name, value in answers.items()
        }
    )


def make_fault(**arguments: object) -> SimpleNamespace:
    return SimpleNamespace(name="sneeze", arguments=lambda: arguments)


def test_the_offers_of_plugins_are_joined() -> None:
    nose = plugin(event_kinds=[Sneezed], faults={"sneeze": make_fault})
    eyes = plugin(faults={"blink": make_fault}, workloads={"watch": Workload(("-m", "eyes"))})
    plugins = load_from((), {"nose": nose, "eyes": eyes})
    assert plugins.broken == {}
    assert plugins.event_kinds == (Sneezed,)
    assert sorted(plugins.faults) == ["blink", "sneeze"]
    assert plugins.workload("watch").argv == ("-m", "eyes")
    assert plugins.fault("sneeze", times=2).arguments() == {"times": 2}


def test_every_installed_plugin_loads() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plugins = load()
    assert plugins.broken == {}
    assert {"cut", "partition", "kill", "bounce", "pause", "duplicate_id", "slow_link"} <= set(
        plugins.faults
    )
    assert plugins.system("reference/quorum").plane == "quorum"


class Deep(Struct, frozen=True, tag="nose.deep"):
    """A kind that no row of a table could hold."""

    inside: tuple[tuple[int, ...], ...]


class Changeable(Struct, tag="nose.changeable"):
    """A kind that a rule could change while others read it."""

    times: int


class Undotted(Struct, frozen=True, tag="sneezed"):
    """A kind whose tag does not name its plugin."""


SYSTEM = {
    "name": "acme/lamps",
    **{"plane": "lamps", "counts": {}, "folds": (), "workload": "switches"},
    **dict.fromkeys(("layout", "missing", "recovery_bound_ms", "command"), print),
}
SIMULABLE = {f"simulated_{name}": print for name in ("disk", "node", "probe", "client")}


def system(*without: str, **beside: object) -> SimpleNamespace:
    """A system without these members of `System`, and with others."""
    members = {name: value for name, value in SYSTEM.items() if name not in without}
    return SimpleNamespace(**members, **beside)


SWITCHES = {"switches": Workload(("-m", "switches"))}


def finding(clauses: tuple[str, ...] = ()) -> KnownFinding:
    return KnownFinding(
        id="sneezes",
        system="acme/lamp",
        clauses=clauses,
        caused=lambda scene: True,
        says="It sneezes.",
        seen=(Seen(version="", runs=1, of=2),),
        schedule="",
        history="",
    )


CLAUSE = Clause("NOSE-1", "nose", (), "It is clear.")
MARK = Applicability("NOSE-2", "other", Promise.SAME, "so")


class Runs(Rule[None]):
    clause = "NOSE-2"

    @on(Sneezed)
    def _sneezed(self, state: None, event: Event, body: Sneezed) -> Findings:
        return NOTHING


def kept_as_before(rules: object) -> object:
    """A keeper as it was before rules shared anything about the whole run."""
    return rules


class OfBefore:
    """A rule as it was written for version 0.1."""

    clause = "NOSE-1"
    kinds = frozenset({Sneezed})

    def step(self, state: None, event: Event) -> tuple[None, Findings]:
        return state, NOTHING


def lamp_probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    return True


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (
            plugin(event_kinds=[Untagged]),
            "the event kind Untagged has no tag: declare it with tag='plugin.name'",
        ),
        (
            plugin(event_kinds=[Undotted]),
            "the event kind 'sneezed' has no tag of the form plugin.name",
        ),
        (
            plugin(event_kinds=[Deep]),
            "the event kind nose.deep is not flat: make its field inside text, a number, a truth "
            "value, or a tuple of one of them",
        ),
        (
            plugin(event_kinds=[Changeable]),
            "the event kind nose.changeable can be changed: declare it with frozen=True",
        ),
        (plugin(event_kinds=["nose"]), "the event kind 'nose' is no class"),
        (plugin(event_kinds=[Sneezed, Sneezed]), "two event kinds share one name"),
        (plugin(event_kinds=5), "TypeError: 'int' object is not iterable"),
        (
            plugin(systems=[system("counts", "folds")]),
            "the system acme/lamps lacks counts and folds: fencepost.System needs them",
        ),
        (
            plugin(systems=[system("command")]),
            "the system acme/lamps can run nowhere: give it `command` (fencepost.Launchable)",
        ),
        (
            plugin(systems=[system(selectors=("@lit",))]),
            "the system acme/lamps has selectors and lacks select: fencepost.Selecting needs all",
        ),
        (
            plugin(systems=[system(simulated_node=print, simulated_client=print)]),
            "the system acme/lamps has simulated_node and simulated_client and lacks "
            "simulated_disk and simulated_probe: fencepost.Simulable needs all of them",
        ),
        (
            plugin(systems=[system(at=print)]),
            "the system acme/lamps has at and lacks version: fencepost.Versioned needs all of them",
        ),
        (
            plugin(systems=[system(makes=print, drafted=print, tidying=print, surveyed=print)]),
            "lacks attachment: fencepost.Attached needs all of them",
        ),
        (
            plugin(systems=[system("command", image=print, **SIMULABLE)]),
            "the system acme/lamps has image and no program: give it `command`",
        ),
        (
            plugin(systems=[system(probe=lambda *asked: True)]),
            "the probe of the system acme/lamps is no function of a module",
        ),
        (
            plugin(systems=[system("name", name=3)]),
            "the system 3 has a bad `name`: it is 3; make it text (fencepost.System)",
        ),
        (
            plugin(systems=[system("counts", counts=None)]),
            "the system acme/lamps has a bad `counts`: it is None; make it a mapping of names to "
            "numbers (fencepost.System)",
        ),
        (
            plugin(systems=[system("layout", layout=3)]),
            "the system acme/lamps has a bad `layout`: it is 3; make it a function "
            "(fencepost.System)",
        ),
        (
            plugin(systems=[system("layout", layout=lambda: None)]),
            "the system acme/lamps has a `layout` that does not take (shape): fencepost.System is "
            "called with these",
        ),
        (
            plugin(systems=[system(facade="cluster")]),
            "the system acme/lamps has a bad `facade`: it is 'cluster'; make it a function "
            "(fencepost.Faceted)",
        ),
        (
            plugin(systems=[system()], workloads={"switch": Workload(())}),
            "the system acme/lamps has a workload that no plugin offers: offer it by the hook "
            "fencepost_workloads, or correct `workload` of the system (no workload named "
            "'switches'; did you mean 'switch'?)",
        ),
        (
            plugin(clauses=[CLAUSE], rules=[Runs()]),
            "the rule Runs judges a clause that no plugin offers: offer it by the hook "
            "fencepost_clauses, or correct its name (no clause named 'NOSE-2'; did you mean "
            "'NOSE-1'?)",
        ),
        (
            plugin(clauses=[CLAUSE], applicability=[MARK]),
            "an Applicability is about a clause that no plugin offers: offer it by the hook "
            "fencepost_clauses, or correct its name (no clause named 'NOSE-2'; did you mean "
            "'NOSE-1'?)",
        ),
        (
            plugin(clauses=[CLAUSE], known_findings=[finding(clauses=("NOSE-2",))]),
            "the finding sneezes explains a clause that no plugin offers: offer it by the hook "
            "fencepost_clauses, or correct its name (no clause named 'NOSE-2'; did you mean "
            "'NOSE-1'?)",
        ),
        (
            plugin(systems=[system()], workloads=SWITCHES, known_findings=[finding()]),
            "the finding sneezes is of a system that no plugin offers: correct its `system` (no "
            "system named 'acme/lamp'; did you mean 'acme/lamps'?)",
        ),
        (plugin(systems=[system(), system()]), "it gives one system name twice: rename one"),
        (plugin(faults={"not a name": make_fault}), "'not a name'"),
        (plugin(faults={"sneeze": 3}), "'sneeze'"),
        (plugin(workloads={"watch": "python -m eyes"}), "'watch'"),
        (plugin(clauses=["HB-01"]), "'HB-01' is no Clause"),
        (plugin(rules=[OfBefore()]), "the rule OfBefore is no fencepost.Rule: derive it from that"),
        (plugin(rules=[Rule("NOSE-1")]), "the rule Rule handles no event: mark a method with @on"),
        (
            plugin(rules=[Runs().kept(kept_as_before, frozenset())]),  # type: ignore[arg-type]
            "the keeper of the rule Runs does not take (rules, shared)",
        ),
        (plugin(fautls={}), "unknown hook 'fencepost_fautls'"),
        (module(fencepost_faults=hookimpl(lambda cluster: {})), "cluster"),
    ],
)
def test_a_broken_plugin_is_named_and_set_apart(broken: object, why: str) -> None:
    healthy = plugin(faults={"blink": make_fault})
    with pytest.warns(PluginWarning, match="the plugin 'nose' is disabled") as caught:
        plugins = load_from((), {"eyes": healthy, "nose": broken})
    assert why in str(caught[0].message)
    assert list(plugins.broken) == ["nose"]
    assert list(plugins.faults) == ["blink"]


def test_a_whole_system_is_offered() -> None:
    """Its workload may come from another plugin."""
    lamps = plugin(systems=[system(probe=lamp_probe, version="7.0.15")])
    plugins = load_from((), {"lamps": lamps, "wall": plugin(workloads={"switches": Workload(())})})
    assert list(plugins.systems) == ["acme/lamps"]


def test_a_clause_of_a_plane_that_no_system_has_is_named() -> None:
    """It binds nothing, so all runs were green. A plugin of clauses alone may be for a system that
    is not here."""

    def of(**planes: str) -> list[Clause]:
        return [Clause(one, "acme", (plane,), "It holds.") for one, plane in planes.items()]

    clauses = of(ACME_1="lampss", ACME_2="lamps", ACME_3="candles")
    lamps = plugin(systems=[system()], workloads={"switches": Workload(())}, clauses=clauses)
    alone = plugin(clauses=of(ACME_4="torches"))
    with pytest.warns(PluginWarning) as caught:
        load_from((), {"lamps": lamps, "alone": alone})
    has = "the plugin 'lamps' has the clause"
    assert [str(one.message) for one in caught] == [
        f"{has} 'ACME_1' of the plane 'lampss', which no system has; did you mean 'lamps'?",
        f"{has} 'ACME_3' of the plane 'candles', which no system has",
    ]


def test_a_plugin_that_refers_to_a_disabled_one_is_set_apart_too() -> None:
    lamps = plugin(systems=[system()])
    wall = plugin(workloads={"switches": Workload(())}, applicability=[MARK])
    healthy = plugin(faults={"blink": make_fault})
    with pytest.warns(PluginWarning):
        plugins = load_from((), {"lamps": lamps, "wall": wall, "eyes": healthy})
    assert list(plugins.broken) == ["wall", "lamps"]
    assert [offer.plugin for offer in plugins.offers] == ["eyes"]


def test_a_name_that_only_a_disabled_plugin_offers_is_refused_with_the_reason() -> None:
    """The error says why the plugin is disabled."""
    extra = {"lamps": plugin(systems=[system("plane")]), "eyes": plugin(faults={"blink": None})}
    with pytest.warns(PluginWarning):
        plugins = load_from((), extra)
    with pytest.raises(UsageError) as caught:
        plugins.system("acme/lamps")
    assert str(caught.value) == (
        "the plugin 'eyes' is disabled: the fault 'blink' needs a name usable in Python, and a "
        "callable; the plugin 'lamps' is disabled: the system acme/lamps lacks plane: "
        "fencepost.System needs them; no system named 'acme/lamps'; none is known"
    )
    assert caught.value.exit_code == 2


def test_a_near_clause_of_another_plugin_is_not_offered() -> None:
    ears = plugin(clauses=[Clause("ROSE-2", "ears", ("ears",), "It is heard.")])
    with pytest.warns(PluginWarning, match="the rule Runs judges a clause .*no clause named 'NOSE"):
        plugins = load_from((), {"ears": ears, "nose": plugin(rules=[Runs()])})
    with pytest.raises(UsageError) as caught:
        plugins.clause("NOSE-2", "noses")
    assert str(caught.value).startswith("the plugin 'nose' is disabled: the rule Runs judges a ")
    assert "ROSE-2" not in str(caught.value)
    assert "ROSE-2" in str(plugins.clause("ROSE-2", "noses"))


def test_two_plugins_of_one_name_are_both_set_apart() -> None:
    twice = [EntryPoint("nose", module, "fencepost") for module in ("acme.nose", "other.nose")]
    with pytest.warns(PluginWarning) as caught:
        plugins = load_from(twice, {"eyes": plugin(faults={"blink": make_fault})})
    assert [str(one.message) for one in caught] == [
        "the plugin 'nose' is disabled: acme.nose and other.nose have this name: give each a name "
        "of its own in the entry-point group fencepost, or uninstall one"
    ]
    assert list(plugins.faults) == ["blink"]


def test_a_plugin_that_is_found_twice_is_one() -> None:
    entry = EntryPoint("pause", "fencepost_plugins.pause", "fencepost")
    plugins = load_from([entry, entry], {})
    assert plugins.broken == {}
    assert list(plugins.faults) == ["pause"]


def test_a_plugin_whose_hook_raises_is_set_apart() -> None:
    @hookimpl
    def fencepost_faults() -> Mapping[str, FaultFactory]:
        raise RuntimeError("no pepper")

    with pytest.warns(PluginWarning, match="'nose' is disabled: RuntimeError: no pepper"):
        plugins = load_from((), {"nose": module(fencepost_faults=fencepost_faults)})
    assert dict(plugins.faults) == {}


def test_a_lack_of_reports_is_checked_before_work_begins() -> None:
    @hookimpl
    def fencepost_report_lacks(runs: int) -> str:
        return f"paper for {runs} pages is missing" if runs > 1 else ""

    plugins = load_from((), {"printer": module(fencepost_report_lacks=fencepost_report_lacks)})
    plugins.check_report(1)
    with pytest.raises(EnvironmentFailed, match="paper for 2 pages is missing"):
        plugins.check_report(2)


def test_a_plugin_that_cannot_be_imported_is_set_apart() -> None:
    absent = EntryPoint("nose", "no_such_module_anywhere", "fencepost")
    with pytest.warns(PluginWarning, match="'nose' is disabled: ModuleNotFoundError"):
        plugins = load_from([absent], {"eyes": plugin(faults={"blink": make_fault})})
    assert list(plugins.faults) == ["blink"]


@pytest.mark.parametrize(
    ("what", "answers"),
    [
        ("fault 'sneeze'", {"faults": {"sneeze": make_fault}}),
        ("workload 'watch'", {"workloads": {"watch": Workload(())}}),
        ("clause 'NOSE-1'", {"clauses": [Clause("NOSE-1", "nose", (), "It is clear.")]}),
        ("event kind 'nose.sneezed'", {"event_kinds": [Sneezed]}),
    ],
)
def test_one_name_from_two_plugins_is_refused_with_both_named(
    what: str, answers: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match=f"the {what} is given by two plugins, 'eyes' and 'nose'"):
        load_from((), {"nose": plugin(**answers), "eyes": plugin(**answers)})


def test_an_unknown_name_gets_the_nearest_right_one() -> None:
    plugins = load_from((), {"p": plugin(faults={"partition": make_fault, "pause": make_fault})})
    with pytest.raises(UsageError) as caught:
        plugins.fault("partiton")
    assert str(caught.value) == "no fault named 'partiton'; did you mean 'partition'?"
    assert caught.value.exit_code == 2
    assert str(no_such("fault", "xyz", ["b", "a"])) == "no fault named 'xyz'; known: a, b"
    assert str(no_such("fault", "xyz", [])) == "no fault named 'xyz'; none is known"


@pytest.mark.parametrize("name", ["self", "name"])
def test_an_argument_of_a_fault_may_have_any_name(name: str) -> None:
    """A schedule may come from anybody."""
    with pytest.raises(UsageError, match="'kill' was given wrong arguments"):
        load().fault("kill", **{name: 1})


def test_wrong_arguments_of_a_fault_are_the_callers_mistake() -> None:
    def partition(left: str, right: str, *, hard: bool = False) -> SimpleNamespace:
        return SimpleNamespace()

    plugins = load_from((), {"p": plugin(faults={"partition": partition})})
    said = r"'partition' was given wrong arguments: .*'right'; it takes: left, right, hard=False$"
    with pytest.raises(UsageError, match=said):
        plugins.fault("partition", left="broker-1")


def test_every_plugin_is_called_for_a_judged_run_though_one_raises(tmp_path: Path) -> None:
    heard: list[Path] = []

    @hookimpl(specname="fencepost_run_judged")
    def breaks(run_folder: Path) -> None:
        raise OSError("no ink")

    @hookimpl(specname="fencepost_run_judged")
    def listens(run_folder: Path) -> None:
        heard.append(run_folder)

    plugins = load_from(
        (),
        {
            "a": module(hook=listens),
            "b": module(hook=breaks),
            "c": module(hook=listens),
        },
    )
    with pytest.warns(PluginWarning, match="the plugin 'b' failed on .*: OSError: no ink"):
        plugins.run_judged(tmp_path)
    assert heard == [tmp_path, tmp_path]


def test_the_first_report_wins(tmp_path: Path) -> None:
    def reporter(page: str | None) -> ModuleType:
        @hookimpl
        def fencepost_report(request: ReportRequest) -> str | None:
            return page

        return module(fencepost_report=fencepost_report)

    request = ReportRequest.of([tmp_path], tmp_path)
    plugins = load_from((), {"a": reporter(None), "b": reporter("report.html")})
    assert plugins.report(request) == "report.html"
    with pytest.raises(UsageError, match="no loaded plugin makes reports"):
        load_from((), {}).report(request)


def test_a_plugin_called_for_a_judged_run_may_make_its_report(tmp_path: Path) -> None:
    made: list[Path] = []

    @hookimpl(specname="fencepost_run_judged")
    def wants_a_page(run_folder: Path, make_report: Callable[[], Path]) -> None:
        made.append(make_report())

    @hookimpl
    def fencepost_report(request: ReportRequest) -> str | None:
        assert request.runs == (str(tmp_path),)
        return f"{request.out}/report.html"

    plugins = load_from(
        (),
        {"a": module(hook=wants_a_page), "b": module(fencepost_report=fencepost_report)},
    )
    plugins.run_judged(tmp_path)
    assert made == [tmp_path / "report" / "report.html"]


def test_applicability_says_what_a_clause_is_on_another_plane() -> None:
    seeds = plugin(
        clauses=[Clause("A-1", "a", ("quorum",), "Says."), Clause("A-2", "a", (), "So.")]
    )
    marks = [Applicability("A-1", "other", Promise.SAME, "by another name")]
    plugins = load_from((), {"seeds": seeds, "marks": plugin(applicability=marks)})
    clause = plugins.clause("A-1")
    assert clause.binds("other")
    assert clause.binds("quorum")
    assert not clause.binds("third")
    assert clause.unbound("third") == "it binds no third plane"
    changed = [Applicability("A-2", "other", Promise.CHANGED, "otherwise")]
    marked = load_from((), {"seeds": seeds, "marks": plugin(applicability=changed)}).clause("A-2")
    assert not marked.binds("other")
    assert marked.binds("quorum")
    assert marked.unbound("other") == "changed: otherwise"


def test_two_marks_on_one_clause_are_refused() -> None:
    seeds = plugin(clauses=[Clause("A-1", "a", (), "Says.")])
    mark = Applicability("A-1", "other", Promise.SAME, "so")
    with pytest.raises(UsageError, match="'A-1 on other' is given by two plugins, 'x' and 'y'"):
        load_from(
            (),
            {"seeds": seeds, "x": plugin(applicability=[mark]), "y": plugin(applicability=[mark])},
        )


def test_a_version_is_asked_of_a_system_that_has_several() -> None:
    plugins = load()
    assert plugins.system("apache/kraft").plane == "kraft"
    assert plugins.system("apache/kraft@3.9.2").name == "apache/kraft@3.9.2"
    with pytest.raises(UsageError, match="reference/quorum comes in one version"):
        plugins.system("reference/quorum@1.0")
    with pytest.raises(UsageError, match="no system named 'apache/craft'"):
        plugins.system("apache/craft@4.1.0")
