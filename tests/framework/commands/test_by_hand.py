"""A cluster by hand, from its start in one terminal to its page, with the commands of a second
one."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from warm_start import COMMAND_LINE, Ended, fencepost

from fencepost import StatusTable
from fencepost.commands.by_hand import sentence_of, status_shown
from fencepost.model.clock import poll
from fencepost.runs.by_hand.messages import ActiveFault, NodeStatus, Status

LIMIT_S = 120
PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "how-to" / "by-hand.md"
ISOLATED = ActiveFault(
    fault_id="isolate-1",
    fault="isolate",
    arguments={"node": ["broker-1", "broker-2"]},
    targets=("broker-1",),
    receipt=True,
    evidence="7 links answered within 9 ms before, not within 265 ms after",
    since_ms=1500,
    heals_in_ms=8500,
)
LEASE = ("[red]a\x1b", 3, (1, 2), None)


def test_a_status_is_shown_as_tables_of_text() -> None:
    """What a plugin or a node says is no markup, and a terminal obeys none of it."""
    status = Status(
        folder="/runs/1",
        system="acme/db",
        runtime="process",
        up_ms=125_000,
        missing=("node-2 has not joined",),
        nodes=(
            NodeStatus(name="node-1", role="node", process="node-1#2", pid=71, faults=("pause",)),
            NodeStatus(name="node-2", role="node", process="node-2#1", pid=0),
            NodeStatus(name="node-3", role="node", process="", pid=0),
        ),
        faults=(ISOLATED,),
        tables=(
            StatusTable(
                "leases", ("of", "epoch", "who", "held"), (("[red]a\x1b", 3, (1, 2), None),)
            ),
            StatusTable("empty", ("nothing",), ()),
        ),
    )
    console = Console(file=StringIO(), width=200)
    console.print(status_shown(status))
    assert isinstance(console.file, StringIO)
    lines = [re.sub(" +", " ", line).strip() for line in console.file.getvalue().splitlines()]
    assert lines == [
        "acme/db on process, up for 2 min 5 s: /runs/1",
        "lacks: node-2 has not joined",
        "nodes",
        "node state process under",
        "node-1 runs, pid 71 node-1#2 pause",
        "node-2 ended node-2#1",
        "node-3 never started",
        "active faults",
        "fault arguments since heals in receipt",
        f"isolate-1 node=broker-1,broker-2 1.5 s 8.5 s {ISOLATED.evidence}",
        "leases",
        "of epoch who held",
        r"[red]a\x1b 3 1 2 -",
    ]


def test_an_injection_without_a_receipt_says_what_to_look_at() -> None:
    assert sentence_of(ISOLATED).startswith("isolate-1 is injected, heals in 8.5 s: 7 links")
    missed = ActiveFault(
        fault_id="cut-2",
        fault="cut",
        arguments={},
        targets=(),
        receipt=False,
        evidence="no connection was open",
        question="is that link idle?",
        since_ms=0,
    )
    said = "cut-2 has no receipt so far: no connection was open: is that link idle?"
    assert sentence_of(missed) == said


@pytest.mark.tool
def test_all_faults_are_listed_with_their_arguments() -> None:
    assert "isolate NODE\n    No other node reaches" in fencepost("fault").stdout
    listed = json.loads(fencepost("fault", "--json").stdout)["faults"]
    assert listed["bounce"]["usage"] == "bounce NODE AFTER_MS [--signal SIGKILL]"


@pytest.mark.tool
@pytest.mark.parametrize(
    "command", [("status",), ("heal",), ("fault", "kill", "a"), ("cluster", "down")]
)
def test_without_a_cluster_each_command_says_so(
    command: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ended = fencepost(*command, TMPDIR=str(tmp_path_factory.mktemp("t")))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "fencepost: no cluster runs: `fencepost cluster up` starts one\n"


class Terminals:
    """The first terminal with its cluster, and what a second one runs."""

    def __init__(self, folder: Path, out: Path, *words: str) -> None:
        self.out = out
        self.environment = {**os.environ, "TMPDIR": str(folder), "FENCEPOST_OUT": str(out)}
        self.first = subprocess.Popen(
            [sys.executable, "-c", COMMAND_LINE, "cluster", "up", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        assert self.first.stdout is not None
        self.bootstrap = self.first.stdout.readline().strip()

    def second(self, *words: str) -> Ended:
        ended = fencepost(*words, TMPDIR=self.environment["TMPDIR"])
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended

    def status(self) -> Any:
        return json.loads(self.second("status", "--json").stdout)

    def end(self) -> tuple[str, str]:
        return self.first.communicate(timeout=LIMIT_S)


@pytest.fixture
def up(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Terminals]:
    """A cluster of real processes, with clients."""
    words = ("--count", "broker=3", "--workload", "kafka_clients")
    terminals = Terminals(tmp_path_factory.mktemp("t"), tmp_path, *words)
    yield terminals
    with terminals.first as first:
        if first.poll() is None:
            first.send_signal(signal.SIGTERM)
            terminals.end()


def isrs(status: Any) -> dict[str, list[int]]:
    """The ISR of each partition."""
    (table,) = [one for one in status["tables"] if one["title"] == "partitions"]
    return {row[0]: row[table["columns"].index("ISR")] for row in table["rows"]}


@pytest.mark.real
def test_a_cluster_is_broken_healed_and_ended_from_a_second_terminal(up: Terminals) -> None:
    # Broken: the broker loses its places in the ISRs, and the status shows both.
    isolated = up.second("fault", "isolate", "broker-1")
    assert isolated.returncode == 0, isolated.stderr
    assert isolated.stdout.startswith("isolate-1 is injected: ")
    assert poll(lambda: not any(1 in isr for isr in isrs(up.status()).values()), 60)
    broken = up.status()
    assert [one["fault_id"] for one in broken["faults"]] == ["isolate-1"]
    # A fault with a time heals though the terminal that asked for it has ended.
    killed = up.second("fault", "kill", "broker-2", "--for=1s", "--json")
    assert json.loads(killed.stdout)["receipt"] is True
    # Healed: one by itself, one by a word; and the broker is in the ISRs again.
    healed = up.second("heal", "isolate-1")
    assert healed.stdout.startswith("isolate-1 is healed: ")
    assert poll(lambda: not up.status()["faults"], 60)
    assert poll(lambda: {len(isr) for isr in isrs(up.status()).values()} == {3}, 60)
    assert up.second("fault", "kill", "broker-9").returncode == 2
    # Ended: judged, with its page, and both terminals say the same.
    down = up.second("cluster", "down")
    said, errors = up.end()
    assert down.returncode == up.first.returncode == 0, errors
    page = Path(said.strip())
    assert page == Path(down.stdout.strip())
    assert "isolate broker-1" in page.read_text()
    assert "clauses held" in errors
    assert "kill-2 is healed" in errors
    assert down.stderr.strip() in errors
    assert up.second("status").returncode == 2


@pytest.mark.real
def test_a_watcher_sees_the_end_and_an_interrupt_leaves_a_page(up: Terminals) -> None:
    (folder,) = up.out.glob("*-cluster")
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND_LINE, "status", "--watch", "--json", "--run", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=up.environment,
    ) as watching:
        assert watching.stdout is not None
        first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
        assert second["up_ms"] >= first["up_ms"] + 1000
        with subprocess.Popen(
            [sys.executable, "-c", COMMAND_LINE, "status", "--watch", "--json"],
            stdout=subprocess.PIPE,
            text=True,
            env=up.environment,
        ) as left:
            assert left.stdout is not None
            assert left.stdout.readline()
            left.send_signal(signal.SIGINT)
            left.communicate(timeout=LIMIT_S)
        assert left.returncode == 0, "an interrupt is how a watcher ends"
        up.first.send_signal(signal.SIGINT)
        assert watching.wait(timeout=LIMIT_S) == 0
        assert watching.stderr is not None
        assert watching.stderr.read() == f"the cluster of {folder} has ended\n"
    said, _ = up.end()
    assert up.first.returncode == 130
    assert Path(said.strip()) == folder / "report" / "report.html"
    assert Path(said.strip()).is_file()


@pytest.mark.real
def test_a_node_that_ends_again_and_again_ends_the_cluster_which_is_judged(up: Terminals) -> None:
    """At its third end within a minute. The error left the run unjudged, and without a page."""
    killed: set[int] = set()

    def kill_again() -> bool:
        status = up.second("status", "--json")
        if status.returncode:
            return True
        (node,) = [one for one in json.loads(status.stdout)["nodes"] if one["name"] == "broker-2"]
        if node["pid"] and node["pid"] not in killed:
            killed.add(node["pid"])
            os.kill(node["pid"], signal.SIGSEGV)
        return False

    assert poll(kill_again, LIMIT_S, 0.05)
    said, errors = up.end()
    assert len(killed) == 3
    assert up.first.returncode == 1, errors
    assert "AVAIL-running is violated" in errors
    assert Path(said.strip()).is_file()


@pytest.mark.real
def test_of_a_killed_cluster_the_second_terminal_says_so(up: Terminals) -> None:
    (folder,) = up.out.glob("*-cluster")
    up.first.kill()
    up.first.wait(timeout=LIMIT_S)
    asked = up.second("status")
    assert asked.returncode == 2
    assert f"`fencepost report {folder}` judges what it left" in asked.stderr


@pytest.mark.real
def test_the_commands_of_the_page_do_what_it_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each in its order, on one cluster. Two blocks start one: the process runtime's, and the
    simulator's, which is tried here since the others are tried above."""
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]
    starts = [one for one in lines if one[:2] == ["cluster", "up"]]
    assert [starts[0], starts[-1]] == [lines[0], lines[-1]]
    terminals = Terminals(
        tmp_path_factory.mktemp("t"), tmp_path_factory.mktemp("out"), *starts[-1][2:]
    )
    assert poll(lambda: "orders-0" in isrs(terminals.status()), 60)
    for words in lines[1:-1]:
        if "--watch" not in words:
            ended = terminals.second(*words)
            assert ended.returncode == 0, (words, ended.stderr)
    said, errors = terminals.end()
    with terminals.first:
        assert terminals.first.returncode == 0, errors
    assert Path(said.strip()).is_file()
