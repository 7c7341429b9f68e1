"""Metadata as a state machine: a snapshot and the log after it give the state of the whole log.

Also the promises of placement, for any cluster.
"""

from __future__ import annotations

import uuid
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fencepost_clusters.reference.core.cluster import placement
from fencepost_clusters.reference.core.cluster.image import Image, broker_record, isr_change
from fencepost_clusters.reference.core.quorum.metadata import snapshots
from fencepost_clusters.reference.core.quorum.raft.metadata_log import Snapshot
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r

BOUNDED = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
IDS = st.integers(1, 4)
NAMES = st.sampled_from(["orders", "audit", "a"])
VALUES = st.sampled_from(["1", "2", ""])


class Replaying(RuleBasedStateMachine):
    """`whole` replays every record. `rebuilt` does too, but at times it is dropped, loaded from a
    snapshot of itself, and continues from there. Both replay every record as it is read back from
    its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.whole, self.rebuilt, self.left = Image(), Image(), Image()
        self.left_digest = snapshots.digest(self.left)
        self.uuids = 0
        self.incarnations: dict[int, list[uuid.UUID]] = {}
        self.gone: set[int] = set()

    def _uuid(self) -> uuid.UUID:
        self.uuids += 1
        return uuid.UUID(int=self.uuids)

    def _write(self, record: r.Record, level: int = 1) -> None:
        offset = self.whole.offset
        for image in (self.whole, self.rebuilt):
            image.replay(r.decode(r.encode(record, level)), offset)

    @rule(broker=IDS, level=st.sampled_from([1, 2]), fenced=st.booleans())
    def register(self, broker: int, level: int, fenced: bool) -> None:
        self.incarnations.setdefault(broker, []).append(self._uuid())
        self._register(broker, level, fenced)

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), level=st.sampled_from([1, 2]))
    def come_back(self, data: st.DataObject, level: int) -> None:
        """A deleted broker that still runs registers again, as the same incarnation."""
        self._register(data.draw(st.sampled_from(sorted(self.gone))), level, True)

    def _register(self, broker: int, level: int, fenced: bool) -> None:
        ends = (r.EndPoint(name="CLIENT", host="h", port=9092),)
        record = r.BrokerRecord(
            broker_id=broker, broker_epoch=self.whole.offset, end_points=ends, fenced=fenced,
            incarnation_id=self.incarnations[broker][-1],
        )  # fmt: skip
        self._write(record, level)
        self.gone.discard(broker)

    @precondition(lambda self: self.whole.brokers)
    @rule(data=st.data(), fenced=st.booleans(), renewed=st.booleans())
    def fence(self, data: st.DataObject, fenced: bool, renewed: bool) -> None:
        known = self.whole.brokers[data.draw(st.sampled_from(sorted(self.whole.brokers)))]
        epoch = self.whole.offset if renewed else known.epoch
        self._write(broker_record(known, epoch, fenced))

    @rule(broker=IDS)
    def delete_broker(self, broker: int) -> None:
        self._write(r.DeleteBrokerRecord(id=broker))
        if broker in self.incarnations:
            self.gone.add(broker)

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        if name not in self.whole.topics:
            self._write(r.TopicRecord(name=name, topic_id=self._uuid()))

    @precondition(lambda self: self.whole.topics)
    @rule(data=st.data(), index=st.integers(0, 2), ids=st.lists(IDS, min_size=1, unique=True))
    def place(self, data: st.DataObject, index: int, ids: list[int]) -> None:
        name = data.draw(st.sampled_from(sorted(self.whole.topics)))
        record = r.PartitionRecord(
            partition_id=index, topic_id=self.whole.topics[name], replicas=tuple(ids),
            isr=tuple(ids[:1]), leader=ids[0], leader_epoch=self.whole.offset,
            adding_replicas=tuple(ids[1:2]), removing_replicas=tuple(ids[2:3]),
        )  # fmt: skip
        self._write(record)

    @precondition(lambda self: self.whole.all_partitions())
    @rule(data=st.data())
    def change_isr(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.whole.all_partitions()))
        isr = tuple(data.draw(st.lists(st.sampled_from(one.replicas), unique=True)))
        leader = isr[0] if isr else -1
        self._write(isr_change(one, isr, leader, one.leader_epoch + 1))

    @precondition(lambda self: self.whole.topics)
    @rule(data=st.data(), whole=st.booleans())
    def delete_topic(self, data: st.DataObject, whole: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.whole.topics)))
        topic_id = self.whole.topics[name]
        self._write(r.TopicRecord(name=name, topic_id=topic_id, deleting=True))
        if whole:
            self._write(r.DeleteTopicRecord(name=topic_id))

    @rule(data=st.data(), key=st.sampled_from(["k", "l"]), value=VALUES)
    def configure(self, data: st.DataObject, key: str, value: str) -> None:
        resources = [(4, ""), (4, "1"), (64, ""), *((2, name) for name in self.whole.topics)]
        kind, name = data.draw(st.sampled_from(sorted(resources)))
        self._write(r.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))

    @rule(principal=st.sampled_from(["User:a", "User:b"]), operation=st.integers(1, 3))
    def allow(self, principal: str, operation: int) -> None:
        self._write(
            r.AccessControlRecord(
                resource_type=2, resource_name=None, pattern_type=3, principal=principal, host="*",
                operation=operation, permission_type=3,
            )
        )  # fmt: skip

    @rule(level=st.sampled_from([1, 2]), cut=st.integers(1, 5))
    def load_a_snapshot(self, level: int, cut: int) -> None:
        """In as many batches as it takes with `cut` records each."""
        found = [r.encode(one, level) for one in snapshots.records_of(self.rebuilt)]
        slices = [found[at : at + cut] for at in range(0, len(found), cut)]
        data = b"".join(record_batch.build(some, at * cut, 3, 1) for at, some in enumerate(slices))
        loaded = snapshots.load(Snapshot(self.rebuilt.offset, 3, data))
        assert len(snapshots.records_of(loaded)) == len(found)
        self.rebuilt = loaded

    @rule()
    def copy(self) -> None:
        """A controller that takes over continues from a copy of the committed state."""
        self.left, self.rebuilt = self.rebuilt, self.rebuilt.copy()
        self.left_digest = snapshots.digest(self.left)

    @invariant()
    def what_was_copied_stays_as_it_was(self) -> None:
        assert snapshots.digest(self.left) == self.left_digest

    @invariant()
    def both_are_the_same(self) -> None:
        assert vars(self.rebuilt) == vars(self.whole)
        assert snapshots.digest(self.rebuilt) == snapshots.digest(self.whole)

    @invariant()
    def nothing_tells_of_a_setting_that_is_none(self) -> None:
        described = snapshots.records_of(self.whole)
        assert all(one.value for one in described if isinstance(one, r.ConfigRecord))

    @invariant()
    def former_holders_of_an_id_are_remembered(self) -> None:
        assert set(self.rebuilt.brokers) == set(self.incarnations) - self.gone
        for broker, (*before, newest) in self.incarnations.items():
            known = self.rebuilt.brokers.get(broker)
            assert known is None or known.incarnation == newest
            assert all(self.rebuilt.has_lost(broker, one) for one in before)
            assert not self.rebuilt.has_lost(broker, newest)


TestReplaying = Replaying.TestCase
TestReplaying.settings = BOUNDED


# --------------------------------------------------------------------------------------- placement

MANY = settings(max_examples=150, deadline=None, derandomize=True)
BROKERS = st.lists(st.integers(1, 50), min_size=1, max_size=7, unique=True)


def counts(placed: list[tuple[int, ...]], brokers: list[int]) -> list[int]:
    held = Counter(broker for replicas in placed for broker in replicas)
    return [held[broker] for broker in brokers]


@MANY
@given(brokers=BROKERS, partitions=st.integers(0, 60), data=st.data())
def test_placement_is_even_and_never_twice_on_one_broker(
    brokers: list[int], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    placed = list(placement.place(brokers, partitions, factor))
    assert len(placed) == partitions
    assert all(len(set(one)) == factor and set(one) <= set(brokers) for one in placed)
    leaders = counts([one[:1] for one in placed], brokers)
    assert max(leaders) - min(leaders) <= 1
    assert list(placement.place(sorted(brokers), partitions, factor)) == placed
    n = len(brokers)
    if n > 1 and partitions % (n * (n - 1)) == 0:  # whole rounds: all brokers hold as much
        assert len(set(counts(placed, brokers))) == 1


@MANY
@given(brokers=BROKERS, partitions=st.integers(0, 40), data=st.data())
def test_adding_brokers_moves_replicas_to_the_new_ones_only_and_no_more_than_their_share(
    brokers: list[int], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    new = [broker + 100 for broker in data.draw(BROKERS)]
    held = dict(enumerate(placement.place(brokers, partitions, factor)))
    before = counts(list(held.values()), brokers)
    moved = placement.add_brokers(held, brokers, new)
    after = {**held, **moved}
    arrived = 0
    for number, replicas in moved.items():
        was = held[number]
        assert len(set(replicas)) == len(was) == len(replicas)
        changed = [(a, b) for a, b in zip(was, replicas, strict=True) if a != b]
        assert changed
        assert all(a in brokers and b in new for a, b in changed)
        arrived += len(changed)
    share = counts(list(after.values()), new)
    assert arrived == sum(share)
    assert max(share) <= -(-partitions * factor // (len(brokers) + len(new)))
    if max(before) - min(before) <= 1:
        loads = counts(list(after.values()), [*brokers, *new])
        assert max(loads) - min(loads) <= 1
    assert placement.add_brokers(after, brokers, new) == {}


def test_new_brokers_are_preferred_for_as_many_partitions_as_the_old_ones() -> None:
    held = dict(enumerate(placement.place([1, 2], 12, 2)))
    after = {**held, **placement.add_brokers(held, [1, 2], [3, 4])}
    assert Counter(replicas[0] for replicas in after.values()) == {1: 3, 2: 3, 3: 3, 4: 3}


def test_a_leadership_stays_unless_its_move_spreads_leaderships_more_evenly() -> None:
    """A client has to find the new leader."""
    held = {"orders": (1, 2), "refunds": (2, 1)}
    assert placement.add_brokers(held, [1, 2], [3]) == {"refunds": (2, 3)}


@MANY
@given(brokers=BROKERS, topics=st.dictionaries(NAMES, st.integers(1, 12)), data=st.data())
def test_a_second_rebalance_moves_nothing(
    brokers: list[int], topics: dict[str, int], data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    some = st.lists(st.sampled_from(brokers), min_size=factor, max_size=factor, unique=True)
    held = {(t, p): tuple(data.draw(some)) for t, n in topics.items() for p in range(n)}
    moved = placement.rebalance(held, brokers)
    for key, replicas in moved.items():
        assert replicas != held[key]
        held[key] = replicas
    assert placement.rebalance(held, brokers) == {}
    for topic, count in topics.items():
        placed = placement.place(brokers, count, factor)
        assert tuple(held[topic, p] for p in range(count)) == placed
