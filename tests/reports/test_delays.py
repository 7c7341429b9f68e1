"""How long changes of authority took after faults, healings and losses."""

from __future__ import annotations

from folded_tables import folded

import fencepost_kafka as k
from fencepost import NodeStarted, ProcessExited
from fencepost.reporting import FaultRow
from fencepost.testing import HistoryBuilder
from fencepost_reports.one_run.delays import NEVER, delays

MS = 1_000_000
UNTIL_MS = 1_000


def leads(leader: int, epoch: int) -> k.PartitionCommitted:
    return k.PartitionCommitted(
        offset=10 + epoch,
        topic="orders",
        partition=0,
        leader=leader,
        leader_epoch=epoch,
        isr=(1, 2),
        replicas=(1, 2),
    )


def record(offset: int, *, fenced: bool) -> k.BrokerCommitted:
    return k.BrokerCommitted(
        offset=offset, broker_id=1, broker_epoch=5, fenced=fenced, incarnation="a"
    )


class Case:
    """A history whose delays are asked for; times are milliseconds since its beginning."""

    def __init__(self) -> None:
        self.h = HistoryBuilder(start_ms=0)
        for number in (1, 2):
            self.at(0, f"broker-{number}#1", NodeStarted(role="broker", node_id=number))
        self.at(5, "controller-1#1", record(1, fenced=False))
        self.at(6, "controller-1#1", leads(1, 1))

    def at(self, ms: int, process: str, body: object) -> None:
        self.h.after(max(0, ms - self.h.now_ns // MS)).add(process, body)  # type: ignore[arg-type]

    def delays(self, *faults: FaultRow) -> dict[str, tuple[str, str, int]]:
        tables = folded(self.h.events())
        return {
            row.what: (
                row.of,
                row.scope,
                NEVER if row.to_ns == NEVER else (row.to_ns - row.from_ns) // MS,
            )
            for row in delays(
                faults, tables.authority, tables.nodes, tables.exited, until_ns=UNTIL_MS * MS
            )
        }


def pause(from_ms: int, to_ms: int, target: str = "broker-1#1") -> FaultRow:
    return FaultRow(
        fault_id="fault-1",
        fault="pause",
        targets=(target,),
        receipt=True,
        evidence="",
        from_ns=from_ms * MS,
        to_ns=to_ms * MS,
        healed=True,
        heal_receipt=True,
    )


def test_a_node_is_fenced_after_a_fault_and_unfenced_after_its_healing() -> None:
    case = Case()
    case.at(130, "controller-1#1", record(20, fenced=True))
    case.at(250, "controller-1#1", record(21, fenced=False))
    assert case.delays(pause(100, 200)) == {
        "fault to fencing": ("pause", "broker 1", 30),
        "heal to unfenced": ("pause", "broker 1", 50),
    }


def test_a_node_that_is_not_fenced_before_the_healing_never_was() -> None:
    case = Case()
    case.at(230, "controller-1#1", record(20, fenced=True))
    assert case.delays(pause(100, 200))["fault to fencing"] == ("pause", "broker 1", NEVER)


def test_a_fault_of_another_node_fences_nothing() -> None:
    case = Case()
    case.at(130, "controller-1#1", record(20, fenced=True))
    assert case.delays(pause(100, 200, "broker-2#1")).keys() == {"leader loss to new leader"}


def test_a_leader_is_lost_when_its_node_loses_its_own_authority() -> None:
    case = Case()
    case.at(130, "controller-1#1", record(20, fenced=True))
    case.at(170, "controller-1#1", leads(2, 2))
    assert case.delays()["leader loss to new leader"] == ("partition", "partition orders-0", 40)


def test_a_leader_is_lost_when_its_process_ends() -> None:
    case = Case()
    ended = ProcessExited(ended="broker-1#1", exit_code=-9, signal="SIGKILL", expected=True)
    case.at(110, "harness", ended)
    case.at(170, "controller-1#1", leads(2, 2))
    assert case.delays()["leader loss to new leader"] == ("partition", "partition orders-0", 60)


def test_a_leader_that_moves_without_a_loss_is_not_lost() -> None:
    case = Case()
    case.at(170, "controller-1#1", leads(2, 2))
    assert case.delays() == {}


def test_a_leader_that_got_its_authority_back_is_not_lost() -> None:
    case = Case()
    case.at(130, "controller-1#1", record(20, fenced=True))
    case.at(140, "controller-1#1", record(21, fenced=False))
    case.at(170, "controller-1#1", leads(2, 2))
    assert case.delays() == {}


def test_a_loss_without_a_new_leader_has_no_end() -> None:
    case = Case()
    case.at(130, "controller-1#1", record(20, fenced=True))
    assert case.delays()["leader loss to new leader"] == ("partition", "partition orders-0", NEVER)


def test_a_leader_that_the_harness_ends_after_the_run_is_not_lost() -> None:
    case = Case()
    ended = ProcessExited(ended="broker-1#1", exit_code=0, signal=9, expected=True)
    case.at(UNTIL_MS, "harness", ended)
    assert case.delays() == {}
