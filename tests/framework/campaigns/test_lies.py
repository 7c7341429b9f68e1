"""Lies: what one node says in place of the truth, and which rules contradict it."""

from __future__ import annotations

from random import Random  # noqa: TID251 - seeded here

import pytest
from msgspec import structs

from fencepost import Event
from fencepost.campaigns.lies import WITHHELD, How, Lie, Truth, tell
from fencepost.plugins.manager import load
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import FollowingStarted, HighWatermarkAdvanced, LogAppended

LEADER, FOLLOWER = "broker-1#1", "broker-2#1"


def stored(h: HistoryBuilder, process: str, offset: int, digest: str) -> None:
    body = LogAppended(
        topic="orders",
        partition=0,
        base_offset=offset,
        log_end=offset + 1,
        expected_base=offset,
        batch_epoch=0,
        leader_epoch=0,
        as_leader=process == LEADER,
        digest=digest,
        producer_id=-1,
        base_sequence=-1,
    )
    h.add(process, body)


def committed(h: HistoryBuilder, process: str, offset: int) -> None:
    body = HighWatermarkAdvanced(
        topic="orders",
        partition=0,
        high_watermark=offset,
        log_end=offset,
        leader_epoch=0,
        as_leader=process == LEADER,
        isr=(1, 2),
        counted=(),
    )
    h.add(process, body)


@pytest.fixture(scope="module")
def truth() -> Truth:
    """Two replicas store and commit the same two messages, and one begins to follow in between."""
    h = HistoryBuilder()
    for offset, digest in ((0, "a"), (1, "b")):
        for process in (LEADER, FOLLOWER):
            stored(h, process, offset, digest)
    following = FollowingStarted(
        topic="orders", partition=0, leader=1, leader_epoch=0, log_end=2, high_watermark=0
    )
    h.add(FOLLOWER, following)
    for process in (LEADER, FOLLOWER):
        committed(h, process, 2)
    return Truth(
        events=h.events(),
        end=h.end(),
        plane="quorum",
        nodes={"broker-1", "broker-2"},
        promises=load().promises,
    )


def lie(field: str, how: How, value: object = None, slot: str = "broker-2") -> Lie:
    return Lie(slot=slot, kind=LogAppended, field=field, how=how, value=value)


@pytest.mark.parametrize(
    ("field", "how", "value", "said"),
    [
        ("base_offset", "more", None, 1),
        ("base_offset", "less", None, -1),
        ("as_leader", "opposite", None, True),
        ("digest", "other", "z", "z"),
    ],
)
def test_a_lie_changes_one_field_of_the_events_of_one_slot(
    truth: Truth, field: str, how: How, value: object, said: object
) -> None:
    one = lie(field, how, value)
    theirs, own = truth.events[0], truth.events[1]
    assert one.applied(theirs) is theirs
    assert one.applied(truth.events[-1]) is truth.events[-1]
    altered = one.applied(own)
    assert altered is not None
    assert getattr(altered.body, field) == said
    assert altered == structs.replace(own, body=structs.replace(own.body, **{field: said}))


def test_a_list_lacks_its_last_element(truth: Truth) -> None:
    event: Event = truth.events[-1]
    one = Lie(slot="broker-2", kind=HighWatermarkAdvanced, field="isr", how="shorter")
    altered = one.applied(event)
    assert altered is not None
    assert isinstance(altered.body, HighWatermarkAdvanced)
    assert altered.body.isr == (1,)


def test_events_are_withheld_from_one_slot(truth: Truth) -> None:
    one = lie(WITHHELD, "withheld")
    assert [one.applied(event) is None for event in truth.events[:4]] == [False, True, False, True]


def test_a_lie_that_another_replica_contradicts_is_noticed(truth: Truth) -> None:
    violated, _ = truth.judged(lie("digest", "other", "z"))
    assert "RP-05" in violated


def test_a_lie_without_a_witness_is_believed(truth: Truth) -> None:
    assert truth.judged(lie("producer_id", "more")) == ([], False)


def test_a_clause_that_is_exercised_no_more_is_doubted(truth: Truth) -> None:
    every = Lie(slot="broker-1", kind=HighWatermarkAdvanced, field=WITHHELD, how="withheld")
    assert truth.verdicts.verdicts["RP-05"].verdict is Outcome.HOLDS
    assert truth.judged(every) == ([], True)


def test_every_field_that_has_another_value_is_lied_about_once(truth: Truth) -> None:
    lies = list(truth.lies(Random(1)))
    assert lies == list(truth.lies(Random(1)))
    altered = [(one.kind, one.field) for one in lies]
    assert len(altered) == len(set(altered))
    assert (LogAppended, WITHHELD) in altered
    assert (LogAppended, "digest") in altered
    assert (LogAppended, "topic") not in altered  # there is one topic


def test_what_no_rule_contradicts_comes_first(truth: Truth) -> None:
    results = tell([truth], Random(1), 1, lambda line: None)
    assert results.of == len(list(truth.lies(Random(1))))
    assert 0 < results.noticed < results.of
    noticed = [one.noticed for one in results.fields]
    assert noticed == sorted(noticed)
    printed = results.as_json()
    assert printed["noticed"] == results.noticed
