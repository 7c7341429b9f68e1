"""The command line: one sentence and the right exit code for every error.

A command that is refused before it starts anything is called in this process, the others are
programs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from confluent_kafka.admin import AdminClient
from warm_start import COMMAND_LINE, Ended, fencepost, python

from fencepost import Codec, Event, RunStarted
from fencepost.commands.cli import app, main
from fencepost.commands.options import defaults_of
from fencepost.events.integers import MOST
from fencepost.history.recorder import Recorder
from fencepost.history.run_folder import RunFolder, RunInfo
from fencepost.model.clock import poll

pytestmark = pytest.mark.tool

COMMAND = (sys.executable, "-c", COMMAND_LINE)
LIMIT_S = 180
COLLECT = {"PYTEST_ADDOPTS": "--collect-only"}
"""The environment of a session of pytest that shows its settings and its tests only."""
COLOUR = re.compile(r"\x1b\[(?:\d+;)*3[0-7](?:;\d+)*m")
"""The code that makes a terminal write in colour."""
INSTEAD = """
import sys
from fencepost.commands import cli
from fencepost.testing import test_run
test_run.SUITES = sys.argv.pop(1)
cli.main()
"""
"""The command line with other tests for suites."""
INTERRUPTED_BETWEEN_LINES = """
import sys, types

def test_it():
    outer = 1
    def interrupted():
        return outer, sys._getframe()
    frame = interrupted()[1]
    at = next(start for start, _, line in frame.f_code.co_lines() if line is None)
    raise KeyboardInterrupt().with_traceback(types.TracebackType(None, frame, at, -1))
"""
"""An interrupt where the code is of no line, such as a signal may happen to hit."""
UNSTARTED = """
import pytest
from fencepost import EnvironmentFailed, UsageError

@pytest.fixture
def fencepost_shape():
    raise {}

def test_it(cluster):
    pass
"""


@pytest.fixture
def called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """As `fencepost`, without a process for it."""

    def call(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fencepost", *words])
        with pytest.raises(SystemExit) as exited:
            main()
        assert isinstance(exited.value.code, int)
        return Ended(words, exited.value.code, *capsys.readouterr())

    return call


def test_tests_run_beside_a_conftest_that_is_not_theirs(tmp_path: Path) -> None:
    """Pytest loads tests/conftest.py from its working folder, for any suites."""
    theirs = tmp_path / "installed" / "their_suites"
    for path, text in (
        (tmp_path / "tests" / "conftest.py", ""),
        (theirs / "__init__.py", ""),
        (theirs / "test_it.py", "def test_it(): pass"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ended = subprocess.run(
        [sys.executable, "-c", INSTEAD, theirs.name, "run"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.fspath(theirs.parent)},
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("demoo",), "demo"),
        (("demo", "--sistem", "x"), "--system"),
        (("demo", "--system", "reference/quorun"), "reference/quorum"),
        (("run", "--system", "apache/kraf"), "apache/kraft"),
        (("demo", "--system", "apache/kraft"), "apache/kraft has no demonstration"),
        (("run", "--system", "apache/kraft@3.2.0"), "3.3 and newer"),
        (("cluster", "up", "--runtime", "proces"), "process"),
        (("cluster", "up", "--workload", "kafka_client"), "did you mean 'kafka_clients'?"),
        (("cluster", "up", "--setting", "lease"), "NAME=VALUE"),
        (("cluster", "up", "--setting", "no.such=1"), "no.such"),
        (("cluster", "up", "--count", "broker=0"), "a cluster has 1 to 400 brokers"),
        (("replay", "no-such-folder"), "no run"),
        (("report", "no-such-folder"), "no run"),
        (("report",), "name the runs to report, or with --follow"),
        (("report", "--follow", "no-such-folder"), "is no folder"),
        (("run", "no_such_test.py"), "no_such_test.py"),
    ],
)
def test_a_wrong_name_is_answered_in_one_line_with_the_nearest_one(
    words: tuple[str, ...], hint: str, tmp_path: Path, called: Callable[..., Ended]
) -> None:
    out = ("--out", str(tmp_path)) if len(words) > 1 else ()
    # `run` is a session of pytest.
    ended = (fencepost if words[0] == "run" else called)(*words, *out)
    assert ended.returncode == 2, ended.stderr
    assert hint in ended.stderr
    assert "Traceback" not in ended.stderr


def commands_in(helped: str) -> Sequence[str]:
    """The lines of the list of commands; what follows an empty line is none of them."""
    return helped.partition("Commands:")[2].partition("\n\n")[0].splitlines()


def test_the_list_of_commands_cuts_no_line_off(called: Callable[..., Ended]) -> None:
    for words in ((), ("cluster",)):
        listed = commands_in(called(*words, "--help").stdout)
        assert listed
        assert [line for line in listed if line and not line.endswith(".")] == []
        assert [line for line in listed if line.endswith("...")] == []


def test_a_project_sets_the_defaults_of_options(
    tmp_path: Path, called: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "pyproject.toml"
    (tmp_path / "below").mkdir()
    project.write_text("[tool.fencepost]\nsystem = 'reference/quorun'\n")
    monkeypatch.chdir(tmp_path / "below")
    for words in (("soak",), ("conformance",), ("cluster", "up"), ("run", "no_test.py")):
        ended = (fencepost if words[0] == "run" else called)(*words)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "did you mean 'reference/quorum'?" in ended.stderr
    monkeypatch.chdir(tmp_path)
    ended = called("demo", "--system", "apache/kraft")
    assert "apache/kraft has no demonstration" in ended.stderr
    monkeypatch.setenv("FENCEPOST_SYSTEM", "etcd/clustr")
    assert "did you mean 'etcd/cluster'?" in called("soak").stderr
    project.write_text("[tool.fencepost]\nruntme = 'simulated'\n")
    ended = called("plugins")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"fencepost: {project}: no key of [tool.fencepost] named 'runtme'; "
        "did you mean 'runtime'?\n"
    )


def test_what_a_command_does_without_an_option_is_left_to_it() -> None:
    """`replay` takes the run's own runtime, `demo` shows the systems that have one, and so on."""
    configured = {"system": "a", "runtime": "b", "workload": "c", "out": "d", "seed": 1}
    defaults = defaults_of(typer.main.get_command(app), configured)
    assert defaults["replay"] == {"out": "d"}
    assert defaults["demo"] == {"out": "d", "seed": 1}
    assert defaults["conformance"] == {"system": ["a"], "out": "d", "seed": 1}
    assert defaults["cluster"]["up"] == {"system": "a", "runtime": "b", "out": "d", "seed": 1}
    assert defaults["soak"] == configured
    assert defaults["run"] == {}


def header(ended: Ended) -> dict[str, str]:
    """The settings that pytest's header names."""
    (line,) = [one for one in ended.stdout.splitlines() if one.startswith("fencepost: ")]
    return dict(word.split("=", 1) for word in line.split()[1:])


def test_run_takes_the_settings_of_pytest_from_the_strongest_place(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): pass")
    project, ini = tmp_path / "pyproject.toml", tmp_path / "pytest.ini"
    project.write_text(
        "[tool.fencepost]\nruntime = 'simulated'\nsystem = 'reference/legacy'\n"
        "seed = 5\nout = 'kept'\n"
    )
    found = header(fencepost("run", folder=tmp_path, **COLLECT))
    assert found == {
        **{"system": "reference/legacy", "runtime": "simulated", "seed": "5"},
        "out": str(tmp_path / "kept"),
    }
    ini.write_text("[pytest]\nfencepost_runtime = process\nfencepost_seed = 6\n")
    variables = {"FENCEPOST_SEED": "7"}
    found = header(fencepost("run", "test_it.py", folder=tmp_path, **variables))
    assert (found["runtime"], found["seed"], found["system"]) == (
        "process",
        "7",
        "reference/legacy",
    )
    options = ("--runtime", "simulated", "--seed", "8", "--system", "reference/classic")
    ended = fencepost("run", "test_it.py", *options, folder=tmp_path, **variables)
    found = header(ended)
    assert (found["runtime"], found["seed"], found["system"]) == (
        *("simulated", "8", "reference/classic"),
    )


def test_tests_of_a_folder_that_sets_nothing_run_as_the_project_here(tmp_path: Path) -> None:
    """From the folder of a plugin, its tests elsewhere ran on reference/quorum."""
    here, there = tmp_path / "plugin", tmp_path / "tests"
    here.mkdir()
    there.mkdir()
    (here / "pyproject.toml").write_text("[tool.fencepost]\nsystem = 'reference/legacy'\n")
    (there / "test_it.py").write_text("def test_it(): pass")
    found = header(fencepost("run", "../tests/test_it.py", folder=here))
    assert found["system"] == "reference/legacy"
    (there / "pyproject.toml").write_text("[tool.fencepost]\nsystem = 'reference/classic'\n")
    found = header(fencepost("run", "../tests/test_it.py", folder=here))
    assert found["system"] == "reference/classic"


def test_run_takes_the_suite_of_the_system_that_the_ini_file_names(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfencepost_system = etcd/cluster\n")
    collected = fencepost("run", folder=tmp_path, **COLLECT)
    assert "test_locks.py" in collected.stdout
    assert "test_heartbeats.py" not in collected.stdout


def test_the_last_seed_can_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(cluster): pass")
    simulated = {"FENCEPOST_RUNTIME": "simulated"}
    first = header(fencepost("run", folder=tmp_path, **(simulated | COLLECT)))
    ended = fencepost("run", "test_it.py", "--seed", "41", folder=tmp_path, **simulated)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    last = simulated | {"FENCEPOST_SEED": "last"}
    found = header(fencepost("run", folder=tmp_path, **(last | COLLECT)))
    assert found["seed"] == "41" != first["seed"]
    assert fencepost("run", "--seed", "last", folder=tmp_path, **COLLECT).returncode == 0
    refused = fencepost("soak", folder=tmp_path, **last)
    assert refused.returncode == 2
    assert f"'last' is no number of 0 to {MOST}: correct --seed or FENCEPOST_" in refused.stderr


def test_a_replay_takes_the_runtime_of_the_run_though_a_project_names_another(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_it.py").write_text(LEADER_IS_KILLED)
    ended = fencepost("run", "test_it.py", "--runtime", "simulated", folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (recorded,) = tmp_path.glob(".fencepost/*/run.json")
    (tmp_path / "pyproject.toml").write_text("[tool.fencepost]\nruntime = 'process'\n")
    given = {"FENCEPOST_RUNTIME": "process"}
    ended = fencepost("replay", str(recorded.parent), folder=tmp_path, **given)
    assert ended.returncode == 0, ended.stderr
    (replayed,) = {*tmp_path.glob(".fencepost/*/run.json")} - {recorded}
    assert RunFolder(replayed.parent).info().runtime == "simulated"


def test_the_assertions_of_helpers_that_rules_import_show_their_values(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from fencepost_suites.common import surfaces\n"
        "def test_it(): assert type(surfaces.__loader__).__name__ == 'AssertionRewritingHook'\n"
    )
    words = ("run", "test_it.py")  # Python is to load all anew
    ended = subprocess.run([*COMMAND, *words], cwd=tmp_path, stdout=subprocess.PIPE, check=False)
    assert ended.returncode == 0, ended.stdout


def test_a_matrix_of_a_plugins_own_tests(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(LEADER_IS_KILLED)
    options = ("--runtime", "simulated", "--out", str(tmp_path / "out"), "--json")
    ended = fencepost("conformance", "tests", *options, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = {row["clause"]: row for row in json.loads(ended.stdout)}
    assert found["RP-13"]["verdict"] == "holds"
    assert found["RP-13"]["tests"] == ["tests/test_it.py::test_a_leader_is_killed"]


def test_a_missing_toxiproxy_is_named_within_seconds(tmp_path: Path) -> None:
    ended = fencepost(
        "cluster", "up", "--out", str(tmp_path), **{"FENCEPOST_TOXIPROXY": "/no/such"}
    )
    assert ended.returncode == 4
    assert "/no/such" in ended.stderr
    assert "Traceback" not in ended.stderr


DIES = """
import os, sys
if any("reference" in word for word in sys.orig_argv):
    os.write(2, b"RuntimeError: no such disk\\n\\tat Main.main(Main.java:1)\\n\\n")
    os._exit(1)
"""


@pytest.mark.real
def test_a_node_that_dies_at_start_is_named_with_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(DIES)
    broken = {"PYTHONPATH": str(tmp_path)}
    ended = fencepost("cluster", "up", "--out", str(tmp_path / "out"), **broken)
    assert ended.returncode == 4
    (line,) = ended.stderr.splitlines()
    # All three controllers die, and the first one whose end is seen is named.
    said = re.fullmatch(
        r"fencepost: (controller-\d#1) \(process \d+\) ended with exit code 1, but should be "
        r'running; it last said "RuntimeError: no such disk" \((.*)\)',
        line,
    )
    assert said is not None, line
    (log,) = (tmp_path / "out").glob(f"*/logs/{said[1]}.log")
    assert said[2] == str(log)


def test_doctor_and_plugins_list_what_they_find() -> None:
    found = json.loads(fencepost("doctor", "--json").stdout)
    assert {one["what"] for one in found} >= {"Python", "toxiproxy", "Java"}
    offers = json.loads(fencepost("plugins", "--json").stdout)
    assert "cut" in offers["plugins"]["partition"]["faults"]
    assert not offers["broken"]


def test_what_a_plugin_offers_is_counted_until_it_is_asked_for(
    called: Callable[..., Ended],
) -> None:
    kinds = re.compile(r"^etcd .* event_kinds: (.*)$", re.MULTILINE)
    (counted,) = kinds.findall(called("plugins").stdout)
    (named,) = kinds.findall(called("plugins", "etcd").stdout)
    assert "MemberStarted" in named
    assert counted == str(len(named.split()))
    assert kinds.findall(called("plugins", "--all").stdout) == [named]
    said = called("plugins", "isolate").stdout
    assert said.startswith("  faults.isolate(node)  No other node reaches this one")
    assert said.count("\n") == 1
    told = json.loads(called("plugins", "isolate", "--json").stdout)
    assert (told["plugins"], told["faults"]["isolate"]["arguments"]) == ({}, "node")
    assert said in called("plugins", "partition").stdout
    refused = called("plugins", "isolat")
    assert (refused.returncode, refused.stdout) == (2, "")
    said = "no plugin, fault or clause named 'isolat'; did you mean 'isolate'?"
    assert said in refused.stderr


def test_a_clause_is_told_by_its_name_and_with_its_plugin(called: Callable[..., Ended]) -> None:
    said = called("plugins", "ETCD-01").stdout
    assert said.startswith("  ETCD-01  ")
    assert said.count("\n") == 1
    assert said in called("plugins", "etcd").stdout
    told = json.loads(called("plugins", "ETCD-01", "--json").stdout)["clauses"]
    assert set(told["ETCD-01"]) == {"says", "source", "planes"}
    offers = json.loads(called("plugins", "etcd", "--json").stdout)
    assert sorted(offers["clauses"]) == offers["plugins"]["etcd"]["clauses"]


@pytest.mark.real
def test_a_cluster_stays_up_for_a_users_client_until_it_is_interrupted(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "cluster", "up", "--workload", "kafka_clients", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as cluster:
        assert cluster.stdout is not None
        bootstrap = cluster.stdout.readline().strip()
        try:
            client = AdminClient({"bootstrap.servers": bootstrap})

            def named() -> list[int]:
                return sorted(client.list_topics(timeout=10).brokers)

            # The node that is asked may be the last to read that the others are up.
            assert poll(lambda: named() == [1, 2, 3], 30, 0.05), named()
            assert client.list_topics(timeout=10).topics, "the workload's clients have made none"
            (harness,) = tmp_path.glob("*/events/harness.ndjson")
            spawned = (json.loads(line)["body"] for line in harness.read_text().splitlines())
            os.kill(next(s["pid"] for s in spawned if s.get("slot") == "broker-2"), signal.SIGSEGV)
            assert poll(lambda: '"broker-2#2"' in harness.read_text(), 30, 0.05)
        finally:
            cluster.send_signal(signal.SIGTERM)
        assert cluster.wait(timeout=60) == 130
        assert cluster.stderr is not None
        said = cluster.stderr.read()
    assert "broker-2#1 ended by signal 11, unexpectedly; it is started again" in said
    assert "AVAIL-running" in said, "the history is judged at the end"
    (folder,) = (path.parent for path in tmp_path.glob("*/run.json"))
    assert f"fencepost report {folder}" in said
    assert "not complete" not in said


def matrix_of(suites: str, tmp_path: Path, *options: str) -> Ended:
    """`fencepost conformance`, with these tests for suites."""
    tests = tmp_path / "test_suites.py"
    tests.write_text(suites)
    words = ("conformance", "--runtime", "simulated", "--out", str(tmp_path), *options)
    return python(INSTEAD, str(tests), *words)


def test_an_interrupt_between_two_lines_of_a_test_is_one_too(tmp_path: Path) -> None:
    ended = matrix_of(INTERRUPTED_BETWEEN_LINES, tmp_path)
    assert (ended.returncode, ended.stdout) == (130, ""), ended.stderr
    assert ended.stderr == "fencepost: interrupted; everything that was started has ended\n"


def on_terminal(*words: str, **variables: str) -> tuple[int, str]:
    """Runs a program whose output is a terminal: its exit code and all that it wrote."""
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    ours, its = os.openpty()
    with (
        os.fdopen(ours, "rb") as screen,
        subprocess.Popen(
            words, stdout=its, stderr=its, env={**environment, "TERM": "xterm", **variables}
        ) as program,
    ):
        os.close(its)
        shown = b""
        with suppress(OSError):  # Linux reports the end of a terminal by this error
            while part := os.read(screen.fileno(), 65536):
                shown += part
        return program.wait(LIMIT_S), shown.decode()


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    suites = tmp_path / "test_suites.py"
    suites.write_text("def test_it(): pass")
    options = ("conformance", "--runtime", "simulated", "--out", str(tmp_path))
    code, shown = on_terminal(sys.executable, "-c", INSTEAD, str(suites), *options)
    assert code == 0, shown
    assert "reference/quorum on simulated" in shown
    assert "::test_it: passed" in shown
    quiet = matrix_of("def test_it(): pass", tmp_path)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert "\x1b[" not in quiet.stdout


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}], ids=["colour", "no-colour"])
def test_no_colour_is_written_where_none_is_wanted(variables: dict[str, str]) -> None:
    _, shown = on_terminal(*COMMAND, "doctor", **variables)
    assert "toxiproxy:" in shown
    assert bool(COLOUR.search(shown)) != bool(variables)


@pytest.mark.parametrize(
    ("suites", "code", "says"),
    [
        (UNSTARTED.format("EnvironmentFailed('no image')"), 4, "fencepost: no image"),
        (UNSTARTED.format("UsageError('no such spare')"), 2, "no such spare"),
        (UNSTARTED.format("ValueError('odd')"), 70, "::test_it: ValueError: odd"),
        ("import no_such_module", 2, "test_suites.py cannot be collected: "),
        ("def test_it(): assert 1 > 2", 1, "1 failed: "),
    ],
)
def test_a_matrix_of_tests_that_did_not_run_is_not_clean(
    suites: str, code: int, says: str, tmp_path: Path
) -> None:
    ended = matrix_of(suites, tmp_path, "--json")
    assert ended.returncode == code, ended.stderr
    (sentence,) = ended.stderr.splitlines()
    assert says in sentence
    assert "holds" not in {row["verdict"] for row in json.loads(ended.stdout)}


def test_a_damaged_history_is_inconclusive_and_the_damage_is_named(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_info(
        RunInfo(
            run="run",
            system="reference/quorum",
            runtime="process",
            seed=1,
            counts={"controller": 3, "broker": 3},
            settings={},
            defects=(),
            slots=(),
            versions={},
            started_at="2026-01-01T00:00:00+00:00",
            clock_origin_ns=0,
        )
    )
    recorder = Recorder.open(folder.events_of("harness"), "run", "harness")
    begun = RunStarted(system="reference/quorum", runtime="process", seed=1)
    recorder.record(begun)
    recorder.close()
    with folder.events_of("harness").open("ab") as file:
        file.write(Codec().encode(Event("run", "harness", 1, 5, begun))[:40])
    ended = fencepost("report", str(folder.path), "--out", str(tmp_path / "out"))
    assert ended.returncode == 3, ended.stderr
    assert "not complete" in ended.stderr


LEADER_IS_KILLED = """
def test_a_leader_is_killed(cluster, faults, clients):
    writes = clients.produce("orders", count=20)
    with faults.kill(cluster.leader("orders", 0)):
        cluster.eventually(writes.settled)
"""


def test_a_run_ends_with_its_verdicts_and_receipts(tmp_path: Path) -> None:
    tests = tmp_path / "test_it.py"
    tests.write_text(LEADER_IS_KILLED)
    options = ("--runtime", "simulated", "--seed", "3", "--out", str(tmp_path / "out"))
    ended = fencepost("run", str(tests), *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    (killed,) = [line for line in lines if line.startswith("RP-13 ")]
    assert killed.split()[1:4] == ["reference/quorum", "simulated", "holds"]
    assert not [line for line in lines if " not-exercised " in line]
    assert re.search(r"^\d+ clauses not exercised: .* of other systems left out$", lines[-3])
    assert lines[-2] == "1 fault was injected, each with a receipt"
    assert lines[-1] == "nothing new: exit code 0"


def test_a_run_prints_its_verdicts_and_receipts_as_one_object(tmp_path: Path) -> None:
    tests = tmp_path / "test_it.py"
    tests.write_text(LEADER_IS_KILLED)
    options = ("--runtime", "simulated", "--seed", "3", "--out", str(tmp_path / "out"), "--json")
    ended = fencepost("run", str(tests), *options)
    assert ended.stderr == ""
    report = json.loads(ended.stdout)
    assert report["exit_code"] == 0
    assert report["reason"] == "nothing new: exit code 0"
    assert report["verdicts"]["RP-13"] == "holds"
    assert report["receipts"] == {"faults": 1, "without": []}
    assert [one["outcome"] for one in report["tests"]] == ["passed"]


def test_an_unknown_workload_is_refused_before_anything_starts(tmp_path: Path) -> None:
    ended = fencepost("run", "--workload", "kafka_client", "--out", str(tmp_path))
    assert ended.returncode == 2
    assert "did you mean 'kafka_clients'?" in ended.stderr
