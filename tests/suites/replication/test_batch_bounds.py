"""Logs of replicas at the bounds of their batches: what is replaced, cut and compared."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import B1, B2, follow, verdict
from tests.suites.replication.replication_histories import mark, store, truncate

from fencepost.testing import HistoryBuilder, Outcome


def committed(*digests: str) -> HistoryBuilder:
    """The leader has stored these messages and committed them."""
    h = HistoryBuilder()
    for offset, digest in enumerate(digests):
        store(h, B1, offset, digest, as_leader=True)
    mark(h, B1, len(digests))
    return h


@pytest.mark.parametrize("clause", ["RP-12", "RP-15"])
def test_a_batch_replaces_the_one_that_began_at_its_offset(clause: str) -> None:
    h = committed("ours")
    store(h, B2, 0, "theirs")
    store(h, B2, 0, "ours")
    mark(h, B2, 1)
    assert verdict(h, clause).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("to", "expected"), [(1, Outcome.HOLDS), (0, Outcome.VIOLATED)])
def test_a_batch_that_ends_where_a_log_is_cut_is_kept(to: int, expected: Outcome) -> None:
    h = committed("a")
    store(h, B2, 0, "a")
    store(h, B2, 1, "theirs")
    truncate(h, to, end=2, mark=0)
    assert verdict(h, "RP-15").verdict is expected


@pytest.mark.parametrize(("base", "expected"), [(1, Outcome.HOLDS), (2, Outcome.VIOLATED)])
def test_a_follower_has_kept_only_the_messages_before_the_next_one(
    base: int, expected: Outcome
) -> None:
    """Its message at offset 1 is not the committed one."""
    h = committed("a", "b")
    store(h, B2, 0, "a")
    store(h, B2, 1, "theirs")
    follow(h, B2, log_end=1, mark=0)
    store(h, B2, base, "b")
    assert verdict(h, "RP-15").verdict is expected
