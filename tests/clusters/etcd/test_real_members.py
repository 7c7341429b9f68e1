"""Three real etcd members behind links, real client processes, and the rules over their history."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

import msgspec
import operations as porcupine
import pytest
from etcd_members import CLIENT_PORT, CLIENTS, MEMBERS, Members, name

from fencepost import Codec, Event, RunEnd
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import poll
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec
from fencepost.supervision.addresses import claim
from fencepost.testing import Judgement, Outcome, judge
from fencepost_clusters.etcd import rules
from fencepost_clusters.etcd.build import binary, default_cache
from fencepost_clusters.etcd.clients import messages
from fencepost_clusters.etcd.clients.http import Gateway
from fencepost_clusters.etcd.clients.messages import Replied
from fencepost_clusters.etcd.events import (
    KINDS,
    LeaseCompleted,
    LockCompleted,
    MemberObserved,
    RegisterCompleted,
    RegisterInvoked,
    StoreCompleted,
)
from fencepost_clusters.etcd.log_parser import MemberLogParser
from fencepost_clusters.etcd.plugin import DECLARED
from fencepost_clusters.etcd.system import VERSION

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("go") is None, reason="Go builds the etcd server"),
]
WRITES = 5
CODEC = Codec(KINDS)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    program = binary(default_cache())
    network = claim()
    started = Members(program, tmp_path, network.run, election_ms=600, heartbeat_ms=60)
    try:
        for member in MEMBERS:
            started.start(member)
        started.leader()
        yield started
    finally:
        started.end()
        network.close()


# ------------------------------------------------------------------------------------------ links


def put(members: Members, member: int, limit_ms: int = 5_000) -> object:
    """The status of the answer, or why there is none within the limit."""
    gateway = Gateway({name(member): members.seen(CLIENTS, member)}, CLIENT_PORT)
    answer = gateway.ask(name(member), messages.put("k", "v"), limit_ms)
    gateway.close()
    return answer.status if isinstance(answer, Replied) else type(answer).__name__


def test_a_cut_link_between_members_cuts_no_other_link(members: Members) -> None:
    old = members.leader()
    others = [member for member in MEMBERS if member != old]
    members.isolate(old, "mute")
    new = members.leader(others)
    assert [put(members, member) for member in others] == [200, 200]
    assert poll(lambda: members.status(old).leader == "", 5.0), "the old leader did not step down"
    assert put(members, old) == 503
    members.isolate(old, "pass")
    assert poll(lambda: members.status(old).leader == members.status(new).member, 5.0)
    assert put(members, old) == 200


def test_a_cut_link_of_clients_cuts_no_member_off(members: Members) -> None:
    members.links[CLIENTS, 1].set("refuse")
    assert poll(lambda: put(members, 1) == "NotSent", 2.0)
    members.links[CLIENTS, 2].set("mute")
    assert poll(lambda: put(members, 2, 500) == "NoReply", 2.0)
    assert put(members, 3) == 200
    assert all(members.status(member).leader for member in MEMBERS)


def test_dialling_one_way_is_enough_for_two_members(members: Members) -> None:
    """Raft's messages flow both ways on streams that either end dials."""
    leader = members.leader()
    term = members.status(leader).term
    follower = next(member for member in MEMBERS if member != leader)
    members.links[leader, follower].set("refuse")
    assert not poll(lambda: members.status(follower).term != term, 2.0, 0.05)
    assert members.leader() == leader
    assert put(members, follower) == 200


# ---------------------------------------------------------------------------------------- clients


class Clients:
    """Client processes and their events files."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, client: str, **options: object) -> None:
        folder = self._members.folder
        bootstrap = [f"{host}:{port}" for host, port in self._members.bootstrap().values()]
        config = {
            "run": "run", "process": f"clients/{client}#1",
            "events": str(folder / f"{client}.ndjson"), "bootstrap": bootstrap,
            "hosts": {name(m): self._members.seen(CLIENTS, m) for m in MEMBERS},
            "own": {name(m): self._members.seen(m, m) for m in MEMBERS},
            "client_port": CLIENT_PORT, "options": options,
        }  # fmt: skip
        path = folder / f"{client}.json"
        path.write_bytes(msgspec.json.encode(config))
        worker = "fencepost_clusters.etcd.clients.worker"
        self.processes[client] = subprocess.Popen(
            [sys.executable, "-m", worker, str(path)], stdin=subprocess.PIPE
        )

    def events(self, client: str) -> list[Event]:
        """The whole events of a client, which may be writing another one just now."""
        path = self._members.folder / f"{client}.ndjson"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [CODEC.decode(line) for line in lines if line.endswith(b"\n")]

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(SIGCONT)
            assert process.stdin is not None
            process.stdin.close()
        for client, process in self.processes.items():
            assert process.wait(15) == 0, client


def history(members: Members) -> Sequence[Event]:
    """All events of the run in order: those of the clients, and those in the members' logs."""
    offset = time.time_ns() - time.monotonic_ns()
    events = [
        CODEC.decode(line)
        for path in sorted(members.folder.glob("*.ndjson"))
        for line in path.read_bytes().splitlines()
    ]
    for process in members.processes:
        lines = members.log(process).read_text(errors="replace").splitlines()
        parser = MemberLogParser(0)
        parsed = [one for line in lines for one in parser.parse(line)]
        for number, one in enumerate(parsed):
            events.append(Event("run", process, number, one.at_ns - offset, one.body))
    return sorted(events, key=lambda event: event.at_ns)


def judged(events: Sequence[Event]) -> Judgement:
    known = {one.id: one for one in DECLARED.clauses}
    return judge(events, rules.ALL, known, RunEnd(True, events[-1].at_ns), "raft")


def disturbed(members: Members) -> Sequence[Event]:
    """Clients at work while a leader is cut off, a lock's holder is stopped and a leader is
    killed. Their leases are of 2 s: of one of 1 s nothing is certain, as etcd rounds to seconds."""
    clients = Clients(members)
    clients.start("observer", kind="observer")
    for number in (1, 2, 3):
        clients.start(f"register{number}", kind="registers", serializable_every=7, limit_ms=1500)
    for number in (1, 2):
        clients.start(
            f"locker{number}", kind="locker", ttl_s=2, writes=WRITES, every_ms=40, abandon_every=3
        )  # fmt: skip
    assert poll(lambda: _last_token(clients.events("locker1")) > 0, 15.0)
    old = members.leader()
    members.isolate(old, "mute")
    members.leader([member for member in MEMBERS if member != old])
    assert poll(lambda: members.status(old).leader == "", 5.0)
    members.isolate(old, "pass")
    _stop_a_holder(clients)
    killed = members.leader()
    members.signal(f"{name(killed)}#1", SIGKILL)
    members.processes[f"{name(killed)}#1"].wait()
    members.leader([member for member in MEMBERS if member != killed])
    members.start(killed, state="existing")
    assert poll(lambda: members.status(killed).leader != "", 10.0)
    clients.stop()
    clients.processes.clear()
    clients.start("reader", kind="reader")
    clients.stop()
    return history(members)


def _stop_a_holder(clients: Clients) -> None:
    """Stops a client between two writes until the other one has written with a newer token."""
    stopped = clients.processes["locker1"]

    def stops() -> bool:
        if _is_between_writes(clients):
            stopped.send_signal(SIGSTOP)
            if _is_between_writes(clients):
                return True
            stopped.send_signal(SIGCONT)
        return False

    assert poll(stops, 15.0)
    token = _last_token(clients.events("locker1"))
    assert poll(lambda: _last_token(clients.events("locker2")) > token, 15.0)
    count = len(clients.events("locker1"))
    stopped.send_signal(SIGCONT)
    assert poll(lambda: len(clients.events("locker1")) > count + 10, 15.0)


def _is_between_writes(clients: Clients) -> bool:
    """Whether the client has renewed its lease after a write that is not its last."""
    bodies = [event.body for event in clients.events("locker1")]
    taken = [isinstance(one, LockCompleted) and one.action == "take" for one in bodies]
    held = bodies[len(taken) - taken[::-1].index(True) :] if any(taken) else []
    written = sum(isinstance(one, StoreCompleted) and one.outcome == "ok" for one in held)
    last = bodies[-1]
    renewed = isinstance(last, LeaseCompleted) and last.action == "renew" and last.ttl_s > 0
    return renewed and 0 < written < WRITES - 1


def _last_token(events: Iterable[Event]) -> int:
    done = [e.body for e in events if isinstance(e.body, StoreCompleted)]
    return max((one.token for one in done if one.outcome == "ok"), default=-1)


# -------------------------------------------------------------------------------------- porcupine


def as_logs(events: Iterable[Event]) -> list[porcupine.Operation]:
    """A key as a log of the values written to it: its version is the length of the log.

    A read sees the last value and the length. A write whose version is known is an append at that
    place. One of unknown end may be an append anywhere at any later time, or never.
    """
    begun: dict[str, Event] = {}
    numbers: dict[str, int] = {}
    made: list[porcupine.Operation] = []

    def operation(event: Event, kind: str, **more: Any) -> None:
        body: Any = begun[event.body.operation].body  # type: ignore[attr-defined]
        client = numbers.setdefault(event.process, len(numbers))
        call = begun[body.operation].at_ns
        made.append(porcupine.Operation(log=body.key, kind=kind, client=client, call=call, **more))

    for event in events:
        match event.body:
            case RegisterInvoked() as body:
                begun[body.operation] = event
            case RegisterCompleted(serializable=True):
                pass
            case RegisterCompleted(action="put" | "swap", outcome="ok") as body:
                operation(
                    event, "append", offset=max(-1, body.version - 1), value=body.operation,
                    returned=event.at_ns,
                )  # fmt: skip
            case RegisterCompleted(action="put" | "swap", outcome="unknown") as body:
                operation(event, "append", offset=-1, value=body.operation, returned=-1)
            case RegisterCompleted(version=version) as body if version >= 0:
                values = (body.value,) if version else ()
                operation(
                    event, "whole", offset=max(0, version - 1), values=values,
                    returned=event.at_ns,
                )  # fmt: skip
    return made


@pytest.fixture(scope="session")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return porcupine.build(tmp_path_factory.mktemp("porcupine"))


def results(checker: Path, events: Sequence[Event]) -> Mapping[str, str]:
    return {log: one.result for log, one in porcupine.judge(checker, as_logs(events)).items()}


def stale(events: Sequence[Event]) -> Sequence[Event]:
    """The history in which the last read of a key had shown the write before."""
    *rest, last = [
        e for e in events if isinstance(e.body, RegisterCompleted) and e.body.key == "r0"
    ]
    assert isinstance(last.body, RegisterCompleted)
    assert last.body.final
    before = next(
        e.body
        for e in reversed(rest)
        if isinstance(e.body, RegisterCompleted) and 0 < e.body.version < last.body.version
    )
    fields = msgspec.structs.asdict(last.body)
    fields |= {
        "version": before.version,
        "value": before.value,
        "mod_revision": before.mod_revision,
    }
    altered = msgspec.structs.replace(last, body=RegisterCompleted(**fields))
    return [altered if event is last else event for event in events]


def test_a_disturbed_cluster_keeps_every_promise_and_porcupine_agrees(
    members: Members, checker: Path
) -> None:
    events = disturbed(members)
    found = judged(events)
    assert {clause: one.verdict for clause, one in found.verdicts.items()} == {
        one.id: Outcome.HOLDS for one in DECLARED.clauses
    }
    assert set(results(checker, events).values()) == {"Ok"}
    assert any(isinstance(event.body, MemberObserved) for event in events)
    altered = stale(events)
    assert results(checker, altered)["r0"] == "Illegal"
    verdicts = judged(altered).verdicts
    assert [verdicts[f"ETCD-0{n}"].verdict for n in (2, 3)] == [Outcome.VIOLATED] * 2


def test_a_program_of_ones_own_finds_its_peers_by_a_hosts_file_that_nobody_else_sees(
    tmp_path: Path,
) -> None:
    plugins, folder = load(), RunFolder.create(tmp_path / "run")
    here = Path("/etc/hosts").read_text()
    own = plugins.system(f"etcd/cluster@{binary(default_cache())}")
    with Run.start(RunSpec(own), plugins, folder) as run:
        leads = run.cluster.leader()
        with run.faults.kill(leads):
            pass
        run.cluster.eventually(run.cluster.recovered)
        result = run.finish()
    result.check()
    assert folder.info().version == VERSION
    assert Path("/etc/hosts").read_text() == here
