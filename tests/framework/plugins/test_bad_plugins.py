"""Errors of a plugin: one sentence, an exit code of its own, and the other plugins go on.

`test_plugin_manager.py` tests the checks when a plugin is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.echo_node import EchoSystem
from tests.echo_run import PAIR, talking_pair
from warm_start import fencepost

from fencepost import EnvironmentFailed, NodeStarted, Shape, Spare, UsageError, View, one_way
from fencepost.history.run_folder import RunFolder
from fencepost.injection import network
from fencepost.model.errors import PluginFailed
from fencepost.plugins.manager import Plugins, load
from fencepost.plugins.raising import by_plugin
from fencepost.runs.run import Run, RunSpec
from fencepost.runtimes.docker.pod_agent import Agent
from fencepost.runtimes.docker.pods import PodProber, Pods
from fencepost.supervision.addresses import check_layout
from fencepost.testing import HistoryBuilder


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


# ------------------------------------------------------------------- a plugin, installed and broken


def installed(folder: Path, **modules: str) -> Mapping[str, str]:
    """Variables of a program that finds these plugins, each in a distribution of its own."""
    for name, text in modules.items():
        (folder / f"acme_{name}.py").write_text(dedent(text))
        information = folder / f"acme_{name}-1.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme_{name}\n")
        (information / "entry_points.txt").write_text(f"[fencepost]\n{name} = acme_{name}\n")
    paths = [os.fspath(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


LAMPS = """
    from types import SimpleNamespace
    from fencepost import hookimpl

    @hookimpl
    def fencepost_systems():
        return [SimpleNamespace(name="acme/lamps", plane="lamps", counts={}, folds=())]
"""
BLINK = """
    from fencepost import hookimpl

    @hookimpl
    def fencepost_faults():
        return {"blink": print}
"""


@pytest.mark.tool
def test_a_broken_plugin_is_listed_and_the_others_are_offered(tmp_path: Path) -> None:
    shown = fencepost("plugins", **installed(tmp_path, lamps=LAMPS, eyes=BLINK))
    assert shown.returncode == 4
    why = "the system acme/lamps lacks workload, layout, missing and recovery_bound_ms"
    assert f"lamps  disabled: {why}: fencepost.System needs them" in shown.stdout
    assert "eyes  faults: blink" in shown.stdout
    assert "Traceback" not in shown.stderr


@pytest.mark.tool
def test_a_system_of_a_broken_plugin_is_refused_with_the_reason(tmp_path: Path) -> None:
    refused = fencepost("demo", "--system", "acme/lamps", **installed(tmp_path, lamps=LAMPS))
    assert refused.returncode == 2
    error = refused.stderr.splitlines()[-1]
    assert "no system named 'acme/lamps'" in error
    assert "the plugin 'lamps' is disabled: the system acme/lamps lacks workload" in error


@pytest.mark.tool
@pytest.mark.parametrize("raises", ["SystemExit(0)", "BaseException('odd')", "RuntimeError('odd')"])
def test_whatever_a_plugin_raises_at_import_disables_it(tmp_path: Path, raises: str) -> None:
    shown = fencepost("plugins", **installed(tmp_path, evil=f"raise {raises}", eyes=BLINK))
    assert shown.returncode == 4
    assert "evil  disabled: " in shown.stdout
    assert "eyes  faults: blink" in shown.stdout
    assert "Traceback" not in shown.stderr


@pytest.mark.tool
def test_an_interrupt_while_a_plugin_is_imported_is_one(tmp_path: Path) -> None:
    shown = fencepost("plugins", **installed(tmp_path, slow="raise KeyboardInterrupt"))
    assert shown.returncode == 130


LANTERNS = """
    from dataclasses import replace
    from fencepost import hookimpl
    from fencepost_clusters.reference.cluster import ReferenceQuorum

    class Lanterns(ReferenceQuorum):
        def missing(self, view, layout):
            return view.no_such_attribute

    @hookimpl
    def fencepost_systems():
        return [replace(Lanterns(), name="acme/lanterns")]
"""
WORDS = ("--system", "acme/lanterns", "--runtime", "simulated")


@pytest.mark.tool
@pytest.mark.parametrize("words", [("run", "test_it.py"), ("soak", "--runs", "1")])
def test_code_of_a_plugin_that_raises_in_a_run_is_named_with_its_place(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test_it.py").write_text("def test_it(cluster): pass")
    ended = fencepost(*words, *WORDS, **installed(tmp_path, lanterns=LANTERNS))
    assert ended.returncode == 2, ended.stderr
    said = ended.stdout + ended.stderr
    assert "code of the plugin lanterns raised AttributeError: " in said
    assert "acme_lanterns.py, line 8, in missing" in said
    assert "bug of Fencepost" not in said


@pytest.mark.parametrize(
    ("error", "named"), [(EnvironmentFailed("no image"), False), (KeyError("prt"), True)]
)
def test_an_error_of_fencepost_that_a_plugin_raises_is_said_as_it_is(
    error: Exception, named: bool
) -> None:
    code = compile("def raises(error):\n    raise error", "acme/system.py", "exec")
    module: dict[str, Any] = {"__name__": "acme.system"}
    exec(code, module)
    with pytest.raises(type(error)):
        module["raises"](error)
    found = by_plugin(error, {"acme": "acme"})
    said = "the plugin acme raised KeyError: 'prt' (acme/system.py, line 2, in raises)"
    assert (str(found) == f"code of {said}") is named
    assert (found is None) is not named


def test_what_fencepost_or_a_test_raises_is_no_fault_of_a_plugin(plugins: Plugins) -> None:
    with pytest.raises(UsageError) as ours:
        plugins.system("acme/none")
    with pytest.raises(KeyError) as own:
        _ = {}["prt"]
    packages = {"acme": "acme"}
    assert by_plugin(ours.value, packages) is by_plugin(own.value, packages) is None


# ----------------------------------------------------------------------- a role that no slot has


def test_a_role_that_no_slot_has_is_refused_wherever_it_is_named(
    plugins: Plugins, tmp_path: Path
) -> None:
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated", seed=7)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as run:
        named = "no role named 'brokr'; did you mean 'broker'"
        with pytest.raises(UsageError, match=named):
            run.base.of("brokr")
        for fault, arguments in (
            ("isolate_role", {"role": "brokr"}),
            ("cut_from_role", {"node": "broker-1", "role": "brokr"}),
        ):
            with pytest.raises(UsageError, match=named):
                run.faults.inject_named(fault, arguments)
    spares = Shape(spares=(Spare("brokr", 4),))
    with pytest.raises(UsageError, match="no role of a spare node named 'brokr'; did you mean"):
        spec.system.layout(spares)


def test_a_process_that_starts_in_a_role_that_no_slot_has_is_named_with_the_remedy() -> None:
    builder = HistoryBuilder()
    builder.add("broker-2#1", NodeStarted(role="broker", node_id=2))
    builder.add("clients/one#1", NodeStarted(role="client", node_id=-1))
    builder.add("broker-1#1", NodeStarted(role="brokr", node_id=1))
    *others, misnamed = builder.events()
    view = View((), EchoSystem().layout(PAIR).roles)
    for event in others:
        view.apply(event)
        view.check_roles("echo/mesh")
    view.apply(misnamed)
    with pytest.raises(UsageError) as caught:
        view.check_roles("echo/mesh")
    assert str(caught.value) == (
        "broker-1#1 of the system echo/mesh wrote node.started with the role 'brokr', which no "
        "slot has (the slots have: broker): declare a slot with this role, or correct the role in "
        "node.started"
    )
    assert caught.value.exit_code == 2


def test_clients_that_begin_where_no_link_leads_are_refused() -> None:
    layout = EchoSystem().layout(PAIR)
    check_layout(layout)
    with pytest.raises(UsageError, match="clients begin at broker-1:9, and no link leads there"):
        check_layout(replace(layout, bootstrap=(("broker-1", 9),)))


# ----------------------------------------------------------- probes that raise, or fit no node


def clumsy_probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    raise ConnectionResetError("by its peer")


CUT = one_way(["broker-1"], ["broker-2"])


def test_a_probe_that_raises_ends_the_fault_with_its_name(
    tmp_path: Path, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EchoSystem, "probe", property(lambda system: clumsy_probe))
    with talking_pair(tmp_path / "run") as runtime:
        with pytest.raises(
            PluginFailed, match="clumsy_probe of the system echo/mesh raised C"
        ) as caught:
            runtime.apply_cut(CUT)
        assert caught.value.exit_code == 2


def test_a_system_without_a_fitting_probe_is_named_with_the_remedy(
    tmp_path: Path, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An echo node waits for the rest of a frame when it is sent a line of HTTP."""
    monkeypatch.delattr(EchoSystem, "probe")
    monkeypatch.setattr(network, "READY_LIMIT_S", 1.0)
    with talking_pair(tmp_path / "run") as runtime:
        with pytest.raises(UsageError) as caught:
            runtime.apply_cut(CUT)
        assert str(caught.value) == (
            "the system echo/mesh has no `probe` (fencepost.Probed), and no node answers the line "
            "of HTTP that is sent instead: give it a probe that its nodes answer"
        )
        assert caught.value.exit_code == 2


def test_a_probe_that_is_not_in_the_image_of_pods_is_named_with_the_remedy(tmp_path: Path) -> None:
    """Its module is found in this process, and not where the agent runs."""

    class AgentOfAPod:
        def ask(self, what: str, limit_s: float, **request: object) -> Mapping[str, object]:
            return Agent().do_probe({**request, "probe": "no_such_module:probe"})

    system = EchoSystem()
    layout = system.layout(PAIR)
    pods = SimpleNamespace(of=lambda slot: AgentOfAPod(), listen=lambda link: ("127.0.0.1", 1))
    prober = PodProber(cast(Pods, pods), layout, system)
    with pytest.raises(UsageError) as caught:
        prober.ask({layout.links[0]: (1.0, 0)})
    assert str(caught.value) == (
        "the probe fencepost_kafka.probe:kafka_probe of the system echo/mesh cannot be imported in "
        "the image fencepost/pod (ModuleNotFoundError: No module named 'no_such_module'): build "
        "the image with the package of the probe, by ./dev images --with PACKAGE"
    )


def test_the_agent_of_a_pod_outlives_a_probe_that_raises() -> None:
    """Its answer names the exception; if the agent ended, its whole pod would end."""
    asked = {"probe": f"{__name__}:clumsy_probe", "ends": [["127.0.0.1", 1, 1.0, 0]] * 2}
    assert Agent().do_probe(asked) == {"raised": "ConnectionResetError: by its peer"}
