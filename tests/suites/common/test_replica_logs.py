"""The logs of replicas: what a batch replaces, what is truncated, and what is committed."""

from __future__ import annotations

import pytest
from msgspec import Struct

from fencepost import Event
from fencepost_kafka import HighWatermarkAdvanced, LogAppended, LogTruncated
from fencepost_suites.common.replica_logs import Batch, Committed, ReplicaLogs

ONE, TWO = "broker-1#1", "broker-2#1"


def batch(base: int, digest: str, epoch: int = 1) -> LogAppended:
    """A batch of five messages."""
    return LogAppended(
        topic="orders",
        partition=0,
        base_offset=base,
        log_end=base + 5,
        expected_base=base,
        batch_epoch=epoch,
        leader_epoch=epoch,
        as_leader=True,
        digest=digest,
        producer_id=-1,
        base_sequence=-1,
    )


def told(process: str, body: Struct) -> Event:
    return Event("run", process, 0, 0, body)


class Logs:
    """The logs, by what each process tells."""

    def __init__(self, *batches: LogAppended, process: str = ONE) -> None:
        self.logs = ReplicaLogs()
        for one in batches:
            self.append(process, one)

    def append(self, process: str, body: LogAppended) -> Batch:
        self.logs.take(told(process, body), body)
        return self.logs.log(process)[-1]

    def truncate(self, process: str, to_offset: int) -> list[str]:
        body = LogTruncated(
            topic="orders",
            partition=0,
            to_offset=to_offset,
            from_log_end=10,
            high_watermark=0,
            leader_epoch=1,
            reason="leader_epoch",
        )
        self.logs.take(told(process, body), body)
        return [one.digest for one in self.logs.cut]

    def commit(self, process: str, high_watermark: int) -> Committed:
        body = HighWatermarkAdvanced(
            topic="orders",
            partition=0,
            high_watermark=high_watermark,
            leader_epoch=1,
            as_leader=True,
            log_end=high_watermark,
            isr=(1, 2, 3),
            counted=(1, 2, 3),
        )
        self.logs.take(told(process, body), body)
        return self.logs.moved


@pytest.mark.parametrize(
    ("base", "left"), [(10, ["a", "b", "c"]), (5, ["a", "c"]), (3, ["a", "c"]), (0, ["c"])]
)
def test_a_batch_replaces_those_that_begin_at_its_offset_or_later(
    base: int, left: list[str]
) -> None:
    built = Logs(batch(0, "a"), batch(5, "b"), batch(base, "c"))
    assert [one.digest for one in built.logs.log(ONE)] == left


@pytest.mark.parametrize(("to_offset", "lost"), [(10, []), (9, ["b"]), (5, ["b"]), (4, ["b", "a"])])
def test_a_truncation_loses_the_batches_that_end_beyond_it(to_offset: int, lost: list[str]) -> None:
    assert Logs(batch(0, "a"), batch(5, "b")).truncate(ONE, to_offset) == lost


def test_a_replica_agrees_once_another_had_committed_the_same() -> None:
    built = Logs(batch(0, "a"), batch(5, "b"))
    first = built.commit(ONE, 10)
    assert [one.digest for one in first.batches] == ["a", "b"]
    assert (first.agreed, first.conflict) == (False, None)
    built.append(TWO, batch(0, "a"))
    assert built.commit(TWO, 4) == Committed((), False, None)
    assert built.commit(TWO, 5).agreed
    built.append("broker-3#1", batch(0, "a"))
    built.append("broker-3#1", batch(5, "other"))
    third = built.commit("broker-3#1", 10)
    assert not third.agreed
    assert third.conflict is not None
    assert (third.conflict.batch.digest, third.conflict.other) == ("other", ONE)


def test_a_process_that_has_stored_nothing_commits_what_its_slot_has() -> None:
    built = Logs(batch(0, "a"))
    built.commit(ONE, 5)
    built.append(TWO, batch(0, "other"))
    conflict = built.commit("broker-2#2", 5).conflict
    assert conflict is not None
    assert conflict.batch.process == TWO


@pytest.mark.parametrize(("below", "diverges"), [(5, False), (6, True)])
def test_a_batch_diverges_if_it_begins_below_an_offset(below: int, diverges: bool) -> None:
    built = Logs(batch(0, "a"), batch(5, "b"))
    built.commit(ONE, 10)
    for one in (batch(0, "a"), batch(5, "other")):
        built.append(TWO, one)
    assert (built.logs.diverging(TWO, below) is not None) == diverges
