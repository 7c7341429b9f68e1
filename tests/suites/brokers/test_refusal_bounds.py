"""The reasons to refuse a broker, the state it reports, and its first activity (QC-15, REG-01,
REG-04): exact bounds, and what does not count."""

from __future__ import annotations

import pytest
from tests.suites.brokers.broker_histories import BROKER, NEW, OTHER, PEER, verdict
from tests.suites.partition_histories import stated

from fencepost import NodeStarted
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStateChanged,
    BrokerStopping,
    ControllerElected,
    FeatureFinalized,
    HeartbeatAnswered,
    MetadataCommitted,
    SnapshotLoaded,
    SnapshotStored,
)


def answer(
    h: HistoryBuilder,
    error: str = "NONE",
    replayed: int = 0,
    most_behind: int = 5,
    request_epoch: int = 4,
    incarnation: str = "x",
    features: tuple[str, ...] = (),
    process: str = NEW,
) -> None:
    """The active controller's answer to a heartbeat; it names ACTIVE in any case."""
    h.add(
        process,
        HeartbeatAnswered(
            client=BROKER,
            broker_id=1,
            incarnation=incarnation,
            request_epoch=request_epoch,
            broker_epoch=4,
            error=error,
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=3000,
            lease_period_ms=3000,
            controller_epoch=1,
            active_controller=102,
            active=True,
            metadata_offset=replayed,
            target_state="ACTIVE",
            features=features,
            most_behind=most_behind,
        ),
    )


def registered(h: HistoryBuilder, offset: int, incarnation: str, process: str = NEW) -> None:
    h.add(
        process,
        BrokerCommitted(
            offset=offset,
            broker_id=1,
            broker_epoch=offset,
            fenced=True,
            incarnation=incarnation,
        ),
    )


def move(h: HistoryBuilder, old: str, new: str, said: str = "", epoch: int = 5) -> None:
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old=old, new=new, broker_epoch=epoch, reason="x", global_state=said
        ),
    )


# ------------------------------------------------------------------------------------------ QC-15


def test_a_processes_id_is_claimed_by_the_record_of_another() -> None:
    h = HistoryBuilder()
    registered(h, 3, "old")
    registered(h, 4, "new")
    registered(h, 4, "new", process=PEER)
    answer(h, incarnation="old")
    (found,) = verdict(h, "QC-15").violations
    assert found.because == (h.events()[1].ref,)


@pytest.mark.parametrize(
    ("deleted", "outcome"), [(1, Outcome.NOT_EXERCISED), (3, Outcome.VIOLATED)]
)
def test_a_process_whose_id_was_deleted_before_another_took_it_may_come_back(
    deleted: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    registered(h, 3, "old")
    h.add(NEW, BrokerDeleted(offset=4, broker_id=deleted))
    registered(h, 5, "new")
    answer(h, incarnation="old")
    assert verdict(h, "QC-15").verdict is outcome


@pytest.mark.parametrize(
    ("deleted", "outcome"), [(1, Outcome.NOT_EXERCISED), (3, Outcome.VIOLATED)]
)
def test_a_claim_ends_with_the_deletion_of_its_id(deleted: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    registered(h, 3, "old")
    registered(h, 4, "new")
    h.add(NEW, BrokerDeleted(offset=5, broker_id=deleted))
    # A node that starts again reads all of it once more.
    registered(h, 3, "old", process=PEER)
    registered(h, 4, "new", process=PEER)
    answer(h, incarnation="old")
    assert verdict(h, "QC-15").verdict is outcome


@pytest.mark.parametrize(
    ("known", "each", "outcome"),
    [
        pytest.param(20, 2, Outcome.VIOLATED, id="two heartbeats each"),
        pytest.param(20, 1, Outcome.NOT_EXERCISED, id="the first of each"),
        pytest.param(0, 2, Outcome.NOT_EXERCISED, id="what the new one did not know"),
    ],
)
def test_a_new_controller_refuses_a_broker_that_was_behind_before(
    known: int, each: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    for process in (NEW, PEER):
        if known or process == NEW:
            h.add(process, MetadataCommitted(offset=19, epoch=1, kind="Topic", digest=""))
    for epoch, process in enumerate((NEW, PEER)):
        h.add(process, ControllerElected(epoch=epoch, log_end=20, last_epoch=0))
        for _ in range(each):
            answer(h, replayed=10, process=process)
    assert verdict(h, "QC-15").verdict is outcome


@pytest.mark.parametrize(
    ("error", "outcome"),
    [("NONE", Outcome.VIOLATED), ("NOT_CONTROLLER", Outcome.NOT_EXERCISED)],
)
def test_a_refusal_for_another_reason_accepts_no_broker(error: str, outcome: Outcome) -> None:
    h = HistoryBuilder()
    registered(h, 3, "old")
    registered(h, 4, "new")
    answer(h, error, incarnation="old")
    assert verdict(h, "QC-15").verdict is outcome


def test_the_records_of_a_snapshot_count_as_committed() -> None:
    h = HistoryBuilder()
    h.add(NEW, SnapshotLoaded(offset=20, epoch=1, digest="d"))
    for _ in range(3):
        answer(h, replayed=10)
    (found,) = verdict(h, "QC-15").violations
    assert found.because == ()


@pytest.mark.parametrize(
    ("level", "outcome"),
    [
        (1, Outcome.VIOLATED),
        (2, Outcome.NOT_EXERCISED),
        (3, Outcome.NOT_EXERCISED),
        (4, Outcome.VIOLATED),
    ],
)
def test_a_broker_must_support_the_level_that_is_enabled(level: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    h.add(NEW, FeatureFinalized(offset=1, feature="metadata.format", level=level))
    answer(h, features=("metadata.format=2-3",))
    assert verdict(h, "QC-15").verdict is outcome


@pytest.mark.parametrize(
    ("most_behind", "request_epoch", "outcome"),
    [
        (0, 4, Outcome.VIOLATED),
        (-1, 4, Outcome.NOT_EXERCISED),
        (5, 0, Outcome.VIOLATED),
        (5, -1, Outcome.NOT_EXERCISED),
    ],
)
def test_a_registered_broker_may_not_lag_if_a_limit_is_set(
    most_behind: int, request_epoch: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    h.add(NEW, MetadataCommitted(offset=19, epoch=1, kind="Topic", digest=""))
    for _ in range(3):
        answer(h, replayed=10, most_behind=most_behind, request_epoch=request_epoch)
    assert verdict(h, "QC-15").verdict is outcome


# ----------------------------------------------------------------------------------------- REG-04


def test_only_the_first_activity_of_a_process_exercises_reg_04() -> None:
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="x", log_end=0))
    registered(h, 8, "x")
    h.add(BROKER, SnapshotStored(offset=9, epoch=1, records=2, entities=2, level=1, digest=""))
    h.add(BROKER, MetadataCommitted(offset=8, epoch=1, kind="Broker", digest=""))
    for _ in range(2):
        move(h, "FENCED", "ACTIVE")
        move(h, "ACTIVE", "FENCED")
    assert verdict(h, "REG-04").exercised == 1


@pytest.mark.parametrize(
    ("loaded", "stored", "outcome"),
    [
        pytest.param(5, -1, Outcome.HOLDS, id="it had stored what it had"),
        pytest.param(4, -1, Outcome.VIOLATED, id="it had more than it had stored"),
        pytest.param(4, 5, Outcome.HOLDS, id="and stores that"),
    ],
)
def test_a_broker_has_checkpointed_what_it_had_when_it_was_registered(
    loaded: int, stored: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="x", log_end=0))
    h.add(BROKER, SnapshotLoaded(offset=loaded, epoch=1, digest="d"))
    h.add(BROKER, MetadataCommitted(offset=4, epoch=1, kind="Topic", digest=""))
    move(h, "INITIAL", "FENCED")
    registered(h, 8, "x")
    h.add(BROKER, MetadataCommitted(offset=8, epoch=1, kind="Broker", digest=""))
    if stored >= 0:
        stores = SnapshotStored(offset=stored, epoch=1, records=2, entities=2, level=1, digest="")
        h.add(BROKER, stores)
    move(h, "FENCED", "ACTIVE")
    assert verdict(h, "REG-04").verdict is outcome


@pytest.mark.parametrize(
    ("fenced", "applied", "outcome"),
    [
        pytest.param(True, 8, Outcome.VIOLATED, id="registered anew"),
        pytest.param(True, 20, Outcome.HOLDS, id="and caught up"),
        pytest.param(False, 8, Outcome.HOLDS, id="unfenced"),
    ],
)
def test_a_broker_that_is_online_again_has_its_newest_registration(
    fenced: bool, applied: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="x", log_end=0))
    registered(h, 8, "x")
    h.add(BROKER, SnapshotStored(offset=9, epoch=1, records=2, entities=2, level=1, digest=""))
    h.add(BROKER, MetadataCommitted(offset=8, epoch=1, kind="Broker", digest=""))
    move(h, "FENCED", "ACTIVE")
    move(h, "ACTIVE", "FENCED")
    again = BrokerCommitted(offset=20, broker_id=1, broker_epoch=20, fenced=fenced, incarnation="x")
    h.add(PEER, again)
    if applied > 8:
        h.add(BROKER, MetadataCommitted(offset=applied, epoch=1, kind="Broker", digest=""))
    move(h, "FENCED", "ACTIVE")
    assert verdict(h, "REG-04").verdict is outcome


@pytest.mark.parametrize("said", [None, "other"], ids=["silent", "another incarnation"])
@pytest.mark.parametrize(("answers", "violated"), [(True, 1), (False, 0)])
def test_which_registration_is_its_own_is_the_controllers_word(
    said: str | None, answers: bool, violated: int
) -> None:
    h = HistoryBuilder()
    if said is not None:
        h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation=said, log_end=0))
    registered(h, 8, "x")
    if answers:
        answer(h, incarnation="x")
    h.add(BROKER, SnapshotStored(offset=7, epoch=1, records=2, entities=2, level=1, digest=""))
    move(h, "FENCED", "ACTIVE")
    assert verdict(h, "REG-04").violated == violated


# ----------------------------------------------------------------------------------------- REG-01


@pytest.mark.parametrize(
    ("stopping", "said", "kept"),
    [(True, "Stopping", True), (True, "Online", False), (False, "Stopping", False)],
)
def test_a_broker_made_active_after_it_was_asked_to_stop_is_stopping(
    stopping: bool, said: str, kept: bool
) -> None:
    h = HistoryBuilder()
    h.add(
        OTHER,
        BrokerCommitted(offset=5, broker_id=1, broker_epoch=5, fenced=False, incarnation="x"),
    )
    if stopping:
        h.add(
            BROKER,
            BrokerStopping(broker_id=1, state="FENCED", global_state="Fenced", limit_ms=6000),
        )
    move(h, "FENCED", "ACTIVE", said=said)
    found = verdict(h, "REG-01")
    assert found.verdict is (Outcome.HOLDS if kept else Outcome.VIOLATED)
    assert all(stated(one, "stopping") == stopping for one in found.violations)


def test_records_that_a_restarted_node_replays_hide_no_newer_epoch() -> None:
    h = HistoryBuilder()
    for process, last in ((NEW, 20), (OTHER, 16)):
        for epoch in range(1, last + 1):
            h.add(
                process,
                BrokerCommitted(
                    offset=epoch,
                    broker_id=1,
                    broker_epoch=epoch,
                    fenced=False,
                    incarnation="x",
                ),
            )
    move(h, "FENCED", "ACTIVE", said="Online", epoch=20)
    assert verdict(h, "REG-01").verdict is Outcome.HOLDS
