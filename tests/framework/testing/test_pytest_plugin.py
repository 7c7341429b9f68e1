"""Fencepost under pytest: options, refusals, and real clusters judged within the test's call."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent

import pytest
from warm_start import runpytest

from fencepost.events.integers import MOST

pytestmark = pytest.mark.tool

pytest_plugins = ["pytester"]

SMALL = """
    import pytest
    from fencepost_kafka import kafka_shape

    @pytest.fixture
    def fencepost_shape():
        settings = {"min.insync.replicas": "1", "default.replication.factor": "1"}
        return kafka_shape(controllers=1, brokers=1, settings=settings)
"""
"""A conftest: the smallest cluster there is, since each test starts one."""
WARNED = ("-W", "error", "-W", "ignore:Module already imported so cannot be rewritten")
"""A warm start has imported it."""
SIMULATED = "--fencepost-runtime=simulated"
"""For tests of what becomes of a run, wherever its nodes live."""

NOSE = '''
    """A plugin with a clause that a test breaks by writing a certain topic."""

    from fencepost import Clause, Exercised, Rule, Violated, Evidence, hookimpl, on
    from fencepost_kafka import TopicCommitted

    class Nose(Rule):
        clause = "NOSE-1"

        @on(TopicCommitted)
        def _made(self, state, event, body):
            if body.topic == "pepper":
                return [Violated(event.ref, Evidence.SELF, "it sneezed at pepper")]
            return [Exercised(event.ref, Evidence.SELF)]

    @hookimpl
    def fencepost_clauses():
        return [Clause("NOSE-1", "nose", (), "A nose does not sneeze.")]

    @hookimpl
    def fencepost_rules():
        return [Nose()]
'''


@pytest.fixture
def nose(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the plugin `nose` for this test alone, as a distribution on the path."""
    made = pytester.path / "installed"
    info = made / "nose-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nose\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fencepost]\nnose = nose_plugin\n")
    (made / "nose_plugin.py").write_text(dedent(NOSE))
    monkeypatch.setenv("PYTHONPATH", str(made))


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Pytest in a process of its own, without modules of this one."""
    if not (pytester.path / "conftest.py").exists():
        pytester.makeconftest("import sys; sys.modules['hypothesis'] = None  # as in SMALL")
    left_out = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    return runpytest(pytester, *left_out, *WARNED, *args)


def folders(pytester: pytest.Pytester) -> list[Path]:
    return sorted(path.parent for path in pytester.path.glob(".fencepost/*/run.json"))


def verdict(folder: Path, clause: str) -> str:
    return str(json.loads((folder / "verdicts.json").read_text())[clause]["verdict"])


# ------------------------------------------------------------------------------ beside other tests


def test_tests_that_do_not_use_it_do_not_notice(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    for args in (("--strict-markers", "--strict-config"), ("-p", "no:fencepost"), ("-n", "1")):
        run(pytester, *args).assert_outcomes(passed=1)
    assert not (pytester.path / ".fencepost").exists()


def test_the_header_names_system_runtime_and_seed(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--fencepost-seed=42")
    result.stdout.fnmatch_lines(["fencepost: system=reference/quorum runtime=process seed=42 *"])


def test_a_seed_is_drawn_when_none_is_given(pytester: pytest.Pytester) -> None:
    seeds = {re.findall(r"seed=(\d+)", run(pytester).stdout.str())[0] for _ in range(2)}
    assert len(seeds) == 2


def test_the_ini_file_has_the_same_settings(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfencepost_seed = 7\nfencepost_out = kept\n")
    result = run(pytester, "--strict-config")
    result.stdout.fnmatch_lines([f"fencepost: * seed=7 out={pytester.path / 'kept'}"])
    result = run(pytester, "--fencepost-seed=8")
    result.stdout.fnmatch_lines(["fencepost: * seed=8 *"])


def test_pyproject_has_the_same_settings_and_is_weaker_than_the_ini_file(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyprojecttoml("[tool.fencepost]\nseed = 7\nout = 'kept'\nruntime = 'simulated'\n")
    result = run(pytester)
    result.stdout.fnmatch_lines(
        [f"fencepost: * runtime=simulated seed=7 out={pytester.path / 'kept'}"]
    )
    pytester.makeini("[pytest]\nfencepost_seed = 8\n")
    run(pytester).stdout.fnmatch_lines(["fencepost: * runtime=simulated seed=8 *"])
    result = run(pytester, "--fencepost-seed=9", "--fencepost-runtime=process")
    result.stdout.fnmatch_lines(["fencepost: * runtime=process seed=9 *"])


def test_a_variable_of_the_environment_is_stronger_than_files_and_weaker_than_an_option(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyprojecttoml("[tool.fencepost]\nseed = 7\nruntime = 'simulated'\n")
    pytester.makeini("[pytest]\nfencepost_seed = 8\n")
    monkeypatch.setenv("FENCEPOST_SEED", "9")
    run(pytester).stdout.fnmatch_lines(["fencepost: * runtime=simulated seed=9 *"])
    result = run(pytester, "--fencepost-seed=10")
    result.stdout.fnmatch_lines(["fencepost: * runtime=simulated seed=10 *"])
    monkeypatch.setenv("FENCEPOST_SEED", "soon")
    refused = run(pytester).stderr.str()
    assert f"the seed of Fencepost is 0 to {MOST}, or 'last', not 'soon'" in refused


def test_an_unknown_setting_is_refused_with_the_nearest_one(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml("[tool.fencepost]\nsytem = 'x'\n")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    says = "no key of [tool.fencepost] named 'sytem'; did you mean 'system'?"
    assert f"{pytester.path / 'pyproject.toml'}: {says}" in result.stderr.str()


def test_marker_and_fixtures_are_documented(pytester: pytest.Pytester) -> None:
    run(pytester, "--markers").stdout.fnmatch_lines(["@pytest.mark.clause(*ids): the promises *"])
    fixtures = run(pytester, "--fixtures").stdout.str()
    for name in ("cluster", "faults", "clients", "history", "fencepost_shape"):
        assert re.search(rf"^{name} -- .*\n    \S", fixtures, re.MULTILINE), name


def test_an_assertion_of_a_helper_shows_its_values(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from dataclasses import dataclass, field
        from itertools import count

        from fencepost.testing import kit
        from fencepost_suites.common import shapes

        numbers = count()

        @dataclass(frozen=True)
        class Renamed:
            name: str = field(default_factory=lambda: f"fault-{next(numbers)}", compare=False)

            def arguments(self):
                return {}

        def test_the_kit():
            kit.check_fault(Renamed)

        def test_the_suites():
            assert type(shapes.__loader__).__name__ == "AssertionRewritingHook"
        """
    )
    result = run(pytester)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["E * assert 'fault-1' == 'fault-0'"])


@pytest.mark.parametrize(
    ("args", "source", "says"),
    [
        (
            ["--fencepost-seed=x"],
            "def test_it(): pass",
            f"the seed of Fencepost is 0 to {MOST}, or 'last', not 'x'",
        ),
        (
            ["--fencepost-system=reference/quorun"],
            "def test_it(cluster): pass",
            "no system named 'reference/quorun'; did you mean 'reference/quorum'?",
        ),
        (
            ["--fencepost-runtime=proces"],
            "def test_it(cluster): pass",
            "no runtime named 'proces'; did you mean 'process'?",
        ),
        (
            [],
            "import pytest\n@pytest.mark.clause('NOSE-2')\ndef test_it(): pass",
            "no clause named 'NOSE-2'; did you mean 'NOSE-1'?",
        ),
    ],
)
@pytest.mark.usefixtures("nose")
def test_bad_input_is_refused_in_one_line_before_anything_starts(
    pytester: pytest.Pytester, args: list[str], source: str, says: str
) -> None:
    pytester.makepyfile(source)
    result = run(pytester, *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {says}" in result.stderr.str()
    assert folders(pytester) == []


@pytest.mark.real
def test_a_refusal_by_a_worker_of_xdist_is_one_line_too(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test_a(cluster): pass\ndef test_b(cluster): pass")
    result = run(pytester, "-n", "2", "--fencepost-runtime=proces")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = result.stdout.str() + result.stderr.str()
    assert said.count("ERROR: no runtime named 'proces'; did you mean 'process'?") == 1
    assert "INTERNALERROR" not in said
    assert folders(pytester) == []


# ------------------------------------------------------------------------------------ real clusters


@pytest.mark.real
@pytest.mark.usefixtures("nose")
def test_a_test_passes_when_its_clause_holds(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SMALL)
    pytester.makepyfile(
        """
        import pytest
        from fencepost import PhaseStarted, TestStarted
        from fencepost_kafka import ProduceCompleted

        @pytest.mark.clause("NOSE-1")
        def test_it(cluster, faults, clients, history):
            writes = clients.produce("orders", count=5)
            cluster.eventually(writes.settled)
            assert len(writes.acked) == len(history.of(ProduceCompleted, writes.process)) == 5
            assert history.of(TestStarted)[0].clauses == ("NOSE-1",)
            with faults.kill(cluster.leader("orders", 0)) as killed:
                assert killed.receipt.true
        """
    )
    run(pytester, "--strict-markers").assert_outcomes(passed=1)
    (folder,) = folders(pytester)
    assert verdict(folder, "NOSE-1") == "holds"
    phases = [
        line["body"]["phase"]
        for line in map(json.loads, (folder / "history.ndjson").read_text().splitlines())
        if line["body"]["type"] == "run.phase"
    ]
    assert phases == ["start", "load", "heal", "drain", "read", "end"]
    assert not (folder / "data").exists(), "the disks are kept of failed runs only"
    assert json.loads((folder / "schedule.json").read_text())["injections"][0]["fault"] == "kill"


@pytest.mark.real
@pytest.mark.usefixtures("nose")
def test_a_broken_promise_fails_the_test_and_prints_how_to_repeat_it(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(SMALL)
    pytester.makepyfile(
        """
        def test_it(clients):
            clients.create_topic("pepper", partitions=1)
        """
    )
    result = run(pytester, "--fencepost-seed=5")
    result.assert_outcomes(failed=1)
    (folder,) = folders(pytester)
    result.stdout.fnmatch_lines(
        [
            "*Violation: NOSE-1 is violated*A nose does not sneeze.",
            "*it sneezed at pepper (*evidence: self)",
            "again: pytest test_a_broken_*::test_it --fencepost-system=reference/quorum "
            "--fencepost-runtime=process --fencepost-seed=5",
            f"run:   {folder}",
        ]
    )
    assert verdict(folder, "NOSE-1") == "violated"
    assert (folder / "data").exists()


@pytest.mark.usefixtures("nose")
def test_a_test_that_fails_by_itself_is_judged_too(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SMALL)
    pytester.makepyfile(
        """
        def test_it(clients):
            clients.create_topic("pepper", partitions=1)
            assert 1 == 2
        """
    )
    result = run(pytester, SIMULATED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2", "*NOSE-1 is violated*", "*sneezed at pepper*"])


@pytest.mark.usefixtures("nose")
def test_a_marked_clause_that_nothing_exercised_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SMALL)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.clause("NOSE-1")
        def test_it(cluster):
            assert cluster.holds(cluster.recovered)
        """
    )
    result = run(pytester, SIMULATED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the test is marked NOSE-1, which nothing in it exercised*"])


def test_a_condition_that_never_holds_fails_within_its_limit(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SMALL)
    pytester.makepyfile(
        """
        def test_it(cluster):
            cluster.eventually(cluster.brokers[0].fenced, within_ms=300)
        """
    )
    result = run(pytester, SIMULATED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*waited 300 ms for broker-1 to be FENCED, in vain*"])


USAGE = """
    import pytest
    from fencepost import Shape

    def break_it(faults):
        faults.cut("not", "these", "arguments", "at", "all")

    @pytest.mark.parametrize("fencepost_shape", [Shape()])
    def test_in_its_body(faults, fencepost_shape):
        break_it(faults)

    @pytest.mark.parametrize("fencepost_shape", [Shape({"brokr": 1})])
    def test_in_its_setup(cluster, fencepost_shape):
        pass
"""
"""Two tests with a UsageError: in the body, with the error of Python that led to it, and before."""


def test_an_error_of_fencepost_is_shown_with_the_lines_of_the_test_only(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(USAGE)
    result = run(pytester, SIMULATED)
    result.assert_outcomes(failed=1, errors=1)
    shown = result.stdout.str()
    lines = re.findall(r"^(\S+)\.py:\d+: in (\w+)", shown, re.MULTILINE)
    module = "test_an_error_of_fencepost_is_shown_with_the_lines_of_the_test_only"
    assert lines == [(module, "test_in_its_body"), (module, "break_it")]
    assert re.findall(r"^E   \S.*", shown, re.MULTILINE) == [
        "E   fencepost.model.errors.UsageError: no count of reference/quorum named 'brokr'; did "
        "you mean 'broker'?",
        "E   fencepost.model.errors.UsageError: the fault 'cut' was given wrong arguments: cut() "
        "takes 2 positional arguments but 5 were given; it takes: sources, targets",
    ]


@pytest.mark.parametrize("option", ["--tb=long", "--full-trace"])
def test_an_error_of_fencepost_is_shown_in_full_when_that_is_asked_for(
    pytester: pytest.Pytester, option: str
) -> None:
    pytester.makepyfile(USAGE)
    shown = run(pytester, SIMULATED, option).stdout.str()
    assert "The above exception was the direct cause of the following exception" in shown
    assert "manager.py" in shown


def test_a_fault_that_missed_leaves_the_test_undecided(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SMALL)
    pytester.makepyfile(
        """
        def test_it(cluster, faults):
            with faults.kill(cluster.brokers[0]):
                faults.pause("broker-1")
        """
    )
    result = run(pytester, SIMULATED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Inconclusive: without a receipt: pause-2*"])


def test_workers_of_xdist_each_have_clusters_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SMALL)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", [1, 2])
        def test_it(cluster, number):
            assert cluster.holds(cluster.brokers[0].active)
        """
    )
    run(pytester, SIMULATED, "-n", "2").assert_outcomes(passed=2)
    runs = [json.loads((folder / "run.json").read_text()) for folder in folders(pytester)]
    assert len(runs) == 2
    assert runs[0]["seed"] == runs[1]["seed"]


def test_a_test_names_the_systems_that_can_show_what_it_checks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from fencepost import Shape

        NONE = Shape(settings={"metadata.snapshot.interval.records": "30"})

        @pytest.mark.only("reference/quorum", reason="Kafka is otherwise")
        def test_other(cluster):
            pass

        @pytest.mark.parametrize("fencepost_shape", [NONE], ids=["set"])
        def test_lacking(cluster):
            pass

        @pytest.mark.clause("RP-26")
        def test_unbound(cluster):
            pass
        """
    )
    result = run(pytester, "--fencepost-system=apache/kraft@4.1.0", "-rs")
    result.assert_outcomes(skipped=3)
    result.stdout.fnmatch_lines(
        [
            "*only reference/quorum: Kafka is otherwise*",
            "*apache/kraft has no setting 'metadata.snapshot.interval.records'*",
            "*RP-26: not-applicable: it would need a machine that loses its power*",
        ]
    )


def test_the_line_that_repeats_a_test_works_in_the_folder_where_it_was_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]")
    pytester.makepyfile(**{"below/test_it": "def test_it(cluster): assert False"})
    monkeypatch.chdir(pytester.path / "below")
    run(pytester, "--fencepost-runtime=simulated").stdout.fnmatch_lines(
        ["again: pytest test_it.py::test_it *"]
    )


def test_the_last_seed_is_taken_again_and_junit_has_the_line_that_repeats_a_test(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test_it(cluster): pass")
    run(pytester, "--fencepost-runtime=simulated", "--fencepost-seed=41").assert_outcomes(passed=1)
    again = run(
        pytester, "--fencepost-runtime=simulated", "--fencepost-seed=last", "--junitxml=found.xml"
    )
    again.assert_outcomes(passed=1)
    again.stdout.fnmatch_lines(["fencepost: *seed=41*"])
    found = (pytester.path / "found.xml").read_text()
    assert '<property name="fencepost_seed" value="41"' in found
    assert 'name="fencepost_again" value="pytest ' in found
    assert '<property name="fencepost_run" value="' in found


def test_a_last_seed_that_is_not_there_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(cluster): pass")
    refused = run(pytester, "--fencepost-seed=last")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    assert "no session has run below" in refused.stderr.str()
