"""KR-18 by the records: fencings that no line of the controller tells."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import (
    CONTROLLER,
    FIRST,
    OBSERVER,
    PEER,
    SESSION_MS,
    ended,
    verdict,
)
from tests.clusters.apache_kafka.test_heartbeat_promises import EPOCH, answered, expires
from tests.suites.partition_histories import stated

from fencepost import Evidence, NodeStarted, Stalled
from fencepost.testing import HistoryBuilder, Outcome, Verdict
from fencepost_kafka import BrokerCommitted, BrokerStopping, MetadataApplied, MetadataCommitted

MS = 1_000_000
EVERY_MS = 500


def committed(h: HistoryBuilder, offset: int, *, fenced: bool, incarnation: str = "one") -> None:
    kind = MetadataCommitted(offset=offset, epoch=1, kind="BrokerRegistrationChange", digest="")
    body = BrokerCommitted(
        offset=offset, broker_id=1, broker_epoch=EPOCH, fenced=fenced, incarnation=incarnation
    )
    h.add(OBSERVER, kind)
    h.add(OBSERVER, body)


def heartbeats(h: HistoryBuilder, for_ms: int, state: str = "ACTIVE", term: int = 1) -> None:
    for _ in range(for_ms // EVERY_MS):
        answered(h.after(EVERY_MS - 1), state, term=term)


def live() -> HistoryBuilder:
    """Broker 1 is unfenced, and sends heartbeats for five seconds."""
    h = HistoryBuilder()
    h.add(FIRST, NodeStarted(role="broker", node_id=1, incarnation="one", log_end=-1))
    committed(h, EPOCH + 1, fenced=False)
    heartbeats(h, 5_000)
    return h


def fenced(h: HistoryBuilder, *, incarnation: str = "one") -> HistoryBuilder:
    """A peer applies the record of the fencing, and the observer reads it a second later."""
    h.add(PEER, MetadataApplied(offset=EPOCH + 5, epoch=1))
    committed(h.after(1_000), EPOCH + 5, fenced=True, incarnation=incarnation)
    return h


def judged(h: HistoryBuilder) -> Verdict:
    return verdict(h.after(5_000), "KR-18")


def test_a_broker_that_is_fenced_while_it_is_heard_breaks_kr_18() -> None:
    found = judged(fenced(live().after(100)))
    assert (found.verdict, found.evidence) == (Outcome.VIOLATED, Evidence.PEER)
    assert stated(found, "broker", "offset", "process") == ("broker 1", EPOCH + 5, CONTROLLER)
    assert stated(found, "session_ms") == SESSION_MS


@pytest.mark.parametrize(("silent_ms", "broken"), [(SESSION_MS - 200, 1), (SESSION_MS - 50, 0)])
def test_a_broker_is_silent_for_a_session_before_it_is_fenced(silent_ms: int, broken: int) -> None:
    found = judged(fenced(live().after(silent_ms)))
    assert (found.violated, found.exercised) == (broken, 1 - broken)


def test_a_heartbeat_that_may_have_come_after_the_fencing_proves_nothing() -> None:
    h = HistoryBuilder()
    committed(h, EPOCH + 1, fenced=False)
    answered(h)
    assert judged(fenced(h.after(900))).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("word", ["asks", "answered"])
def test_a_broker_that_leaves_is_fenced_by_its_own_wish(word: str) -> None:
    h = live()
    if word == "asks":
        h.add(FIRST, BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=1_000))
        fenced(h.after(100))
    else:
        sent_ns = h.now_ns
        fenced(h.after(100))
        answered(h, "SHUTDOWN", ago_ms=(h.now_ns - sent_ns) // MS - 50)
    assert judged(h).violated == 0


def test_a_session_whose_end_is_logged_is_judged_once() -> None:
    h = live().after(100)
    expires(h)
    assert judged(fenced(h)).violated == 1


def test_another_incarnation_another_controller_and_an_undated_record_prove_nothing() -> None:
    other = fenced(live().after(100), incarnation="two")
    undated = live()
    committed(undated.after(1_000), EPOCH + 5, fenced=True)
    former = HistoryBuilder()
    committed(former, EPOCH + 1, fenced=False)
    heartbeats(former, 5_000, term=0)
    for h in (other, undated, fenced(former.after(100))):
        assert judged(h).verdict is Outcome.NOT_EXERCISED


def test_a_controller_that_stalls_or_ends_leaves_an_early_fencing_undecided() -> None:
    stalled, gone = live().after(1_500), fenced(live().after(100))
    stalled.add(CONTROLLER, Stalled(stalled_ns=1_500 * MS))
    ended(gone, CONTROLLER)
    for h in (fenced(stalled), gone):
        assert judged(h).verdict is Outcome.UNKNOWN
