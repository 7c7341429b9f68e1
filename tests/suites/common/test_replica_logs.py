"""The logs of replicas: what a batch replaces, what is truncated, and what is committed."""

from __future__ import annotations

import pytest

from fencepost_kafka import LogAppended
from fencepost_suites.common.replica_logs import Batch, ReplicaLogs

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


def logs(*batches: LogAppended, process: str = ONE) -> ReplicaLogs:
    built = ReplicaLogs()
    for one in batches:
        built.add(Batch(process, one))
    return built


@pytest.mark.parametrize(
    ("base", "left"), [(10, ["a", "b", "c"]), (5, ["a", "c"]), (3, ["a", "c"]), (0, ["c"])]
)
def test_a_batch_replaces_those_that_begin_at_its_offset_or_later(
    base: int, left: list[str]
) -> None:
    built = logs(batch(0, "a"), batch(5, "b"), batch(base, "c"))
    assert [one.digest for one in built.of(ONE)] == left


@pytest.mark.parametrize(("to_offset", "lost"), [(10, []), (9, ["b"]), (5, ["b"]), (4, ["b", "a"])])
def test_a_truncation_loses_the_batches_that_end_beyond_it(to_offset: int, lost: list[str]) -> None:
    built = logs(batch(0, "a"), batch(5, "b"))
    assert [one.digest for one in built.truncate(ONE, to_offset)] == lost


def test_a_replica_agrees_once_another_had_committed_the_same() -> None:
    built = logs(batch(0, "a"), batch(5, "b"))
    assert built.commit(ONE, 10) == (False, None)
    built.add(Batch(TWO, batch(0, "a")))
    assert built.commit(TWO, 4) == (False, None)
    assert built.commit(TWO, 5) == (True, None)
    built.add(Batch("broker-3#1", batch(0, "a")))
    built.add(Batch("broker-3#1", batch(5, "other")))
    agreed, conflict = built.commit("broker-3#1", 10)
    assert not agreed
    assert conflict is not None
    assert (conflict.batch.digest, conflict.other) == ("other", ONE)


@pytest.mark.parametrize(("below", "diverges"), [(5, False), (6, True)])
def test_a_batch_diverges_if_it_begins_below_an_offset(below: int, diverges: bool) -> None:
    built = logs(batch(0, "a"), batch(5, "b"))
    built.commit(ONE, 10)
    for one in (batch(0, "a"), batch(5, "other")):
        built.add(Batch(TWO, one))
    assert (built.diverging(TWO, below) is not None) == diverges
