"""The metadata's rules, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec import structs
from tests.suites.partition_histories import stated

from fencepost import Evidence, NodeStarted, ProcessExited
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStateChanged,
    FeatureFinalized,
    HeartbeatAnswered,
    MetadataCommitted,
    MetadataDigest,
    PartitionCommitted,
    SnapshotAsked,
    SnapshotKnown,
    SnapshotLoaded,
    SnapshotStarted,
    SnapshotStored,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
ONE, TWO, THREE = "controller-1#1", "controller-2#1", "controller-3#1"
BROKER = "broker-1#1"


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


@pytest.fixture
def h() -> HistoryBuilder:
    """A history in which three controllers have begun."""
    built = HistoryBuilder()
    for node_id, process in ((101, ONE), (102, TWO), (103, THREE)):
        built.add(
            process,
            NodeStarted(role="controller", node_id=node_id, incarnation=process, log_end=0),
        )
    return built


# ------------------------------------------------------------------------------------------ QC-06


def test_two_controllers_with_different_states_break_qc_06(h: HistoryBuilder) -> None:
    h.add(ONE, MetadataDigest(offset=32, entities=5, digest="aa"))
    h.add(TWO, MetadataDigest(offset=32, entities=5, digest="bb"))
    (found,) = verdict(h, "QC-06").violations
    assert stated(found, "offset", "digest") == (32, "bb")
    assert found.evidence is Evidence.PEER


def test_two_controllers_with_one_state_keep_qc_06(h: HistoryBuilder) -> None:
    h.add(ONE, MetadataDigest(offset=32, entities=5, digest="aa"))
    h.add("controller-1#2", MetadataDigest(offset=32, entities=5, digest="aa"))
    assert verdict(h, "QC-06").verdict is Outcome.NOT_EXERCISED
    h.add(TWO, MetadataDigest(offset=32, entities=5, digest="aa"))
    assert verdict(h, "QC-06").verdict is Outcome.HOLDS


def test_qc_06_is_undecided_in_a_history_cut_short(h: HistoryBuilder) -> None:
    h.add(ONE, MetadataDigest(offset=32, entities=5, digest="aa"))
    assert verdict(h, "QC-06", complete=False).verdict is Outcome.UNKNOWN


def one_partition(leader: int, role: Literal["broker", "controller"]) -> PartitionCommitted:
    return PartitionCommitted(
        offset=9,
        topic="orders",
        partition=0,
        leader=leader,
        leader_epoch=1,
        isr=(1, 2),
        replicas=(1, 2),
        role=role,
    )


def test_a_node_that_read_another_record_at_an_offset_breaks_qc_06(h: HistoryBuilder) -> None:
    h.add(ONE, one_partition(leader=1, role="controller"))
    h.add(BROKER, one_partition(leader=2, role="broker"))
    (found,) = verdict(h, "QC-06").violations
    assert (found.at.process, stated(found, "other", "offset")) == (BROKER, (ONE, 9))
    assert found.evidence is Evidence.PEER


def test_a_node_that_read_a_record_of_another_type_at_an_offset_breaks_qc_06(
    h: HistoryBuilder,
) -> None:
    h.add(ONE, one_partition(leader=1, role="controller"))
    h.add(TWO, FeatureFinalized(offset=9, feature="metadata.format", level=2))
    assert verdict(h, "QC-06").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(
    ("told", "why"),
    [(True, ""), (True, "too late"), (True, "confirmed"), (False, "")],
)
def test_a_record_that_no_controller_has_replayed_breaks_qc_06(
    h: HistoryBuilder, told: bool, why: str
) -> None:
    """Nothing is known where controllers tell no records."""
    far = structs.replace(one_partition(leader=2, role="broker"), offset=10**9)
    if told:
        h.add(ONE, one_partition(leader=1, role="controller"))
    h.add(BROKER, far)
    h.after(1_000 if why == "too late" else 60_000)
    if why == "confirmed":
        h.add(TWO, far)
    h.add(ONE, MetadataDigest(offset=32, entities=5, digest="aa"))
    found = verdict(h, "QC-06")
    assert found.violated == (told and not why)
    if found.violations:
        assert stated(found, "process", "offset", "committed") == (BROKER, 10**9, 9)


def test_nodes_in_other_roles_and_later_offsets_keep_qc_06(h: HistoryBuilder) -> None:
    h.add(ONE, one_partition(leader=1, role="controller"))
    h.add(BROKER, one_partition(leader=1, role="broker"))
    h.add(BROKER, structs.replace(one_partition(leader=2, role="broker"), offset=10))
    assert verdict(h, "QC-06").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ QC-11


def written(h: HistoryBuilder, digest: str, records: int, process: str = ONE) -> None:
    """A snapshot of five entities, during which a record is replayed."""
    h.add(process, MetadataDigest(offset=32, entities=5, digest="aa"))
    h.add(process, SnapshotStarted(offset=32, entities=5, controller_epoch=1))
    h.add(process, MetadataCommitted(offset=32, epoch=1, kind="IsrChange", digest="x"))
    h.add(
        process,
        SnapshotStored(
            offset=32, epoch=1, records=records, entities=records, level=1, digest=digest
        ),
    )


@pytest.mark.parametrize(("digest", "records"), [("bb", 4), ("bb", 5), ("aa", 6)])
def test_a_snapshot_of_another_state_or_of_more_records_breaks_qc_11(
    h: HistoryBuilder, digest: str, records: int
) -> None:
    written(h, digest, records)
    assert stated(verdict(h, "QC-11"), "records", "entities") == (records, 5)


def test_a_state_rebuilt_from_a_snapshot_that_is_another_breaks_qc_11(h: HistoryBuilder) -> None:
    h.add(ONE, MetadataDigest(offset=64, entities=5, digest="aa"))
    h.add(TWO, SnapshotLoaded(offset=32, epoch=1, digest="xx"))
    h.add(TWO, MetadataDigest(offset=64, entities=5, digest="bb"))
    found = verdict(h, "QC-11").violations[0]
    assert stated(found, "process", "offset", "other") == (TWO, 64, ONE)
    assert found.evidence is Evidence.PEER


def test_a_whole_snapshot_and_the_same_state_from_it_keep_qc_11(h: HistoryBuilder) -> None:
    written(h, "aa", 5)
    h.add(TWO, SnapshotLoaded(offset=32, epoch=1, digest="aa"))
    found = verdict(h, "QC-11")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 2)


@pytest.mark.parametrize(("peer", "evidence"), [(ONE, Evidence.SELF), (TWO, Evidence.PEER)])
def test_a_snapshot_is_compared_with_another_nodes_state_if_there_is_one(
    h: HistoryBuilder, peer: str, evidence: Evidence
) -> None:
    h.add(peer, MetadataDigest(offset=32, entities=5, digest="aa"))
    written(h, "aa", 5)
    found = verdict(h, "QC-11")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, evidence)


@pytest.mark.parametrize(
    ("process", "evidence"), [("controller-1#2", Evidence.SELF), (TWO, Evidence.PEER)]
)
def test_a_state_from_a_snapshot_is_compared_with_another_nodes_if_there_is_one(
    h: HistoryBuilder, process: str, evidence: Evidence
) -> None:
    h.add(ONE, MetadataDigest(offset=32, entities=5, digest="aa"))
    h.add(process, SnapshotLoaded(offset=32, epoch=1, digest="aa"))
    found = verdict(h, "QC-11")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, evidence)


def test_a_snapshot_that_nothing_changed_under_does_not_exercise_qc_11(h: HistoryBuilder) -> None:
    h.add(ONE, MetadataDigest(offset=32, entities=5, digest="aa"))
    h.add(ONE, SnapshotStarted(offset=32, entities=5, controller_epoch=1))
    h.add(ONE, SnapshotStored(offset=32, epoch=1, records=5, entities=5, level=1, digest="aa"))
    assert verdict(h, "QC-11").verdict is Outcome.NOT_EXERCISED


def test_qc_11_is_undecided_in_a_history_cut_short(h: HistoryBuilder) -> None:
    h.add(ONE, SnapshotStarted(offset=32, entities=5, controller_epoch=1))
    assert verdict(h, "QC-11", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ QC-12


def asked(h: HistoryBuilder, controller: int, waited: bool = False, epoch: int = 1) -> None:
    h.add(
        ONE,
        SnapshotAsked(
            controller=controller,
            last_offset=-1,
            committed=100,
            controller_epoch=epoch,
            waited=waited,
            patience_ms=3000,
        ),
    )


def test_a_second_snapshot_while_one_is_under_way_breaks_qc_12(h: HistoryBuilder) -> None:
    asked(h, 102)
    h.add(TWO, SnapshotStarted(offset=100, entities=5, controller_epoch=1))
    asked(h, 103)
    h.add(THREE, SnapshotStarted(offset=100, entities=5, controller_epoch=1))
    found = verdict(h, "QC-12").violations
    assert {one.evidence for one in found} == {Evidence.SELF, Evidence.PEER}


def test_a_snapshot_that_waited_for_the_other_keeps_qc_12(h: HistoryBuilder) -> None:
    asked(h, 102)
    h.add(TWO, SnapshotStarted(offset=100, entities=5, controller_epoch=1))
    h.add(TWO, SnapshotStored(offset=100, epoch=1, records=5, entities=5, level=1, digest="aa"))
    h.add(ONE, SnapshotKnown(controller=102, offset=100, controller_epoch=1))
    asked(h, 103, waited=True)
    h.add(THREE, SnapshotStarted(offset=100, entities=5, controller_epoch=1))
    assert verdict(h, "QC-12").verdict is Outcome.HOLDS


@pytest.mark.parametrize("why", ["given up", "dead", "another epoch"])
def test_a_snapshot_after_one_that_never_ended_keeps_qc_12(h: HistoryBuilder, why: str) -> None:
    asked(h, 102)
    h.add(TWO, SnapshotStarted(offset=100, entities=5, controller_epoch=1))
    if why == "dead":
        h.add("harness", ProcessExited(ended=TWO, exit_code=0, signal=9, expected=True))
    if why != "another epoch":
        h.after(3000)
    asked(h, 103, epoch=2 if why == "another epoch" else 1)
    h.add(
        THREE,
        SnapshotStarted(
            offset=100, entities=5, controller_epoch=2 if why == "another epoch" else 1
        ),
    )
    assert verdict(h, "QC-12").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("process", "beside", "violated"), [(TWO, False, 1), (TWO, True, 0), (BROKER, True, 0)]
)
def test_a_controller_that_begins_a_snapshot_by_itself_breaks_qc_12(
    h: HistoryBuilder, process: str, beside: bool, violated: int
) -> None:
    """A broker takes its own when it likes, also one that has a controller beside it."""
    if beside:
        h.add(process, NodeStarted(role="broker", node_id=2, incarnation="b", log_end=0))
    h.add(process, SnapshotStarted(offset=100, entities=5, controller_epoch=-1))
    found = verdict(h, "QC-12")
    assert found.violated == violated
    if violated:
        assert stated(found, "process", "offset") == (TWO, 100)


def test_qc_12_is_undecided_in_a_history_cut_short(h: HistoryBuilder) -> None:
    asked(h, 102)
    assert verdict(h, "QC-12", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize(("asks", "outcome"), [(False, Outcome.VIOLATED), (True, Outcome.HOLDS)])
def test_two_snapshots_at_once_that_nobody_gave_up_break_qc_12(
    h: HistoryBuilder, asks: bool, outcome: Outcome
) -> None:
    for controller, process in ((102, TWO), (103, THREE)):
        if asks:
            h.after(5_000)
            asked(h, controller, waited=True)
        h.add(process, SnapshotStarted(offset=100, entities=5, controller_epoch=1))
    assert verdict(h, "QC-12").verdict is outcome


# ------------------------------------------------------------------------------------------ QC-33


def test_a_level_may_be_told_after_the_records_that_keep_to_it(h: HistoryBuilder) -> None:
    h.add(TWO, MetadataCommitted(offset=7, epoch=1, kind="Broker", digest="aa", version=1))
    h.add(ONE, FeatureFinalized(offset=5, feature="metadata.format", level=2))
    found = verdict(h, "QC-33")
    assert (found.violated, found.exercised) == (0, 1)


def test_a_level_that_is_told_later_is_held_against_the_records_before(h: HistoryBuilder) -> None:
    h.add(TWO, MetadataCommitted(offset=7, epoch=1, kind="Broker", digest="aa", version=0))
    h.add(ONE, FeatureFinalized(offset=5, feature="metadata.format", level=2))
    assert stated(verdict(h, "QC-33"), "version", "expected") == (0, 1)
    assert verdict(h, "QC-33", complete=False).verdict is Outcome.UNKNOWN


def test_a_record_above_the_enabled_level_breaks_qc_33(h: HistoryBuilder) -> None:
    h.add(ONE, FeatureFinalized(offset=1, feature="metadata.format", level=1))
    h.add(ONE, MetadataCommitted(offset=2, epoch=1, kind="Broker", digest="aa", version=1))
    assert stated(verdict(h, "QC-33"), "version", "expected") == (1, 0)


def test_a_snapshot_above_the_enabled_level_breaks_qc_33(h: HistoryBuilder) -> None:
    h.add(ONE, FeatureFinalized(offset=1, feature="metadata.format", level=1))
    h.add(ONE, SnapshotStored(offset=9, epoch=1, records=5, entities=5, level=2, digest="aa"))
    assert stated(verdict(h, "QC-33"), "level", "expected") == (2, 1)


def test_records_on_either_side_of_a_raised_level_keep_qc_33(h: HistoryBuilder) -> None:
    h.add(ONE, FeatureFinalized(offset=1, feature="metadata.format", level=1))
    h.add(ONE, MetadataCommitted(offset=4, epoch=1, kind="Broker", digest="aa", version=0))
    h.add(ONE, MetadataCommitted(offset=5, epoch=1, kind="Config", digest="aa", version=0))
    h.add(ONE, FeatureFinalized(offset=5, feature="metadata.format", level=2))
    h.add(ONE, MetadataCommitted(offset=6, epoch=1, kind="Broker", digest="aa", version=1))
    h.add(
        TWO, MetadataCommitted(offset=4, epoch=1, kind="Broker", digest="aa", version=0)
    )  # later, and below the new level
    h.add(ONE, SnapshotStored(offset=9, epoch=1, records=5, entities=5, level=2, digest="aa"))
    assert verdict(h, "QC-33").verdict is Outcome.HOLDS


def test_a_snapshot_ends_right_before_the_record_at_its_offset(h: HistoryBuilder) -> None:
    h.add(ONE, FeatureFinalized(offset=21, feature="metadata.format", level=2))
    for offset, level in ((21, 1), (22, 2)):
        h.add(
            ONE,
            SnapshotStored(offset=offset, epoch=1, records=5, entities=5, level=level, digest="aa"),
        )
    assert verdict(h, "QC-33").verdict is Outcome.NOT_EXERCISED


def test_qc_33_is_undecided_in_a_history_cut_short(h: HistoryBuilder) -> None:
    assert verdict(h, "QC-33", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ QC-15


def answered(
    h: HistoryBuilder,
    error: str = "NONE",
    offset: int = 0,
    features: tuple[str, ...] = (),
    incarnation: str = "new",
    state: str = "ACTIVE",
) -> None:
    """The active controller's answer to a heartbeat of broker 1, which may be 5 records behind."""
    body = HeartbeatAnswered(
        client=BROKER,
        broker_id=1,
        incarnation=incarnation,
        request_epoch=4,
        broker_epoch=4,
        error=error,
        next_state=state,
        lease_start_ms=0,
        lease_end_ms=0,
        lease_period_ms=3000,
        controller_epoch=1,
        active_controller=101,
        active=True,
        balance_ms=0,
        metadata_offset=offset,
        target_state="ACTIVE",
        features=features,
        most_behind=5,
    )
    h.add(ONE, body)


def test_a_broker_kept_active_far_behind_breaks_qc_15(h: HistoryBuilder) -> None:
    h.add(ONE, MetadataCommitted(offset=20, epoch=1, kind="Topic", digest="aa"))
    for _ in range(3):
        answered(h, offset=10)
    (found,) = verdict(h, "QC-15").violations
    assert stated(found, "reasons", "behind") == (("stale",), 10)


@pytest.mark.parametrize(
    ("offset", "outcome"), [(14, Outcome.NOT_EXERCISED), (13, Outcome.VIOLATED)]
)
def test_a_broker_may_be_as_many_records_behind_as_is_configured(
    h: HistoryBuilder, offset: int, outcome: Outcome
) -> None:
    h.add(ONE, MetadataCommitted(offset=19, epoch=1, kind="Topic", digest="aa"))
    for _ in range(3):
        answered(h, offset=offset)
    assert verdict(h, "QC-15").verdict is outcome


def test_a_broker_that_does_not_support_a_level_breaks_qc_15(h: HistoryBuilder) -> None:
    h.add(ONE, FeatureFinalized(offset=1, feature="metadata.format", level=2))
    answered(h, features=("metadata.format=1-1",))
    answered(h)  # it reports no features, so it supports the first level only
    assert len(verdict(h, "QC-15").violations) == 2


def test_a_process_whose_id_was_claimed_and_that_is_accepted_breaks_qc_15(
    h: HistoryBuilder,
) -> None:
    h.add(
        ONE, BrokerCommitted(offset=3, broker_id=1, broker_epoch=3, fenced=True, incarnation="old")
    )
    h.add(
        ONE, BrokerCommitted(offset=4, broker_id=1, broker_epoch=4, fenced=True, incarnation="new")
    )
    answered(h, incarnation="old", state="FENCED")
    assert stated(verdict(h, "QC-15"), "reasons") == ("claimed",)


def test_each_refusal_with_its_own_error_keeps_qc_15(h: HistoryBuilder) -> None:
    h.add(
        ONE, BrokerCommitted(offset=3, broker_id=1, broker_epoch=3, fenced=True, incarnation="old")
    )
    h.add(
        ONE, BrokerCommitted(offset=4, broker_id=1, broker_epoch=4, fenced=True, incarnation="new")
    )
    answered(h, "DUPLICATE_BROKER_REGISTRATION", incarnation="old")
    h.add(ONE, MetadataCommitted(offset=20, epoch=1, kind="Topic", digest="aa"))
    answered(h, offset=10)  # what came after its last heartbeat does not count against it
    answered(h, "STALE_BROKER_EPOCH", offset=10)
    answered(h, offset=10, state="FENCED")  # while it catches up
    h.add(ONE, FeatureFinalized(offset=21, feature="metadata.format", level=2))
    answered(h, "UNSUPPORTED_VERSION", offset=21)
    answered(h, offset=21, features=("metadata.format=1-2",))
    found = verdict(h, "QC-15")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 3)


def test_a_deleted_broker_may_come_back_under_qc_15(h: HistoryBuilder) -> None:
    h.add(
        ONE, BrokerCommitted(offset=3, broker_id=1, broker_epoch=3, fenced=True, incarnation="old")
    )
    h.add(
        ONE, BrokerCommitted(offset=4, broker_id=1, broker_epoch=4, fenced=True, incarnation="new")
    )
    h.add(ONE, BrokerDeleted(offset=5, broker_id=1))
    answered(h, incarnation="old", offset=5)
    assert verdict(h, "QC-15").verdict is Outcome.NOT_EXERCISED


def test_qc_15_is_undecided_in_a_history_cut_short(h: HistoryBuilder) -> None:
    assert verdict(h, "QC-15", complete=False).verdict is Outcome.UNKNOWN


# ----------------------------------------------------------------------------------------- REG-04


def joining(h: HistoryBuilder, replayed: int, checkpoint: bool = True) -> None:
    """A broker that registers at offset 8 and goes online."""
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="inc", log_end=0))
    h.add(
        ONE, BrokerCommitted(offset=8, broker_id=1, broker_epoch=8, fenced=True, incarnation="inc")
    )
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="INITIAL", new="FENCED", broker_epoch=8, reason="registered"
        ),
    )
    if checkpoint:
        h.add(
            BROKER, SnapshotStored(offset=3, epoch=1, records=2, entities=2, level=1, digest="aa")
        )
    h.add(BROKER, MetadataCommitted(offset=replayed, epoch=1, kind="Broker", digest="aa"))
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="FENCED", new="ACTIVE", broker_epoch=9, reason="unfenced"
        ),
    )


def test_a_broker_online_before_its_own_registration_breaks_reg_04(h: HistoryBuilder) -> None:
    joining(h, 7)
    found = verdict(h, "REG-04").violations[0]
    assert stated(found, "applied", "offset") == (7, 8)
    assert found.evidence is Evidence.PEER


def test_a_broker_online_without_a_checkpoint_breaks_reg_04(h: HistoryBuilder) -> None:
    joining(h, 8, checkpoint=False)
    assert verdict(h, "REG-04").violations[0].evidence is Evidence.SELF


def test_a_broker_online_once_it_has_its_registration_keeps_reg_04(h: HistoryBuilder) -> None:
    joining(h, 8)
    assert verdict(h, "REG-04").verdict is Outcome.HOLDS


@pytest.mark.parametrize(("offset", "outcome"), [(9, Outcome.HOLDS), (8, Outcome.VIOLATED)])
def test_a_broker_may_have_its_registration_from_a_snapshot(
    h: HistoryBuilder, offset: int, outcome: Outcome
) -> None:
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="inc", log_end=0))
    h.add(
        ONE, BrokerCommitted(offset=8, broker_id=1, broker_epoch=8, fenced=True, incarnation="inc")
    )
    h.add(BROKER, SnapshotLoaded(offset=offset, epoch=1, digest="aa"))
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="FENCED", new="ACTIVE", broker_epoch=8, reason="unfenced"
        ),
    )
    assert verdict(h, "REG-04").verdict is outcome


def test_a_controller_that_replays_beside_the_broker_keeps_reg_04(h: HistoryBuilder) -> None:
    h.add(BROKER, NodeStarted(role="controller", node_id=104, incarnation="c", log_end=0))
    h.add(BROKER, MetadataCommitted(offset=8, epoch=1, kind="Broker", digest="aa"))
    joining(h, 6)  # the controller's own replay, in the same process
    assert verdict(h, "REG-04").verdict is Outcome.HOLDS


def test_reg_04_is_undecided_in_a_history_cut_short(h: HistoryBuilder) -> None:
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="inc", log_end=0))
    assert verdict(h, "REG-04", complete=False).verdict is Outcome.UNKNOWN
