"""The fetch sessions of followers at their leader (KIP-227), without a cluster."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node import settings
from fencepost_clusters.reference.core.node.deadlines import Deadlines
from fencepost_clusters.reference.core.node.effects import Instant, Note, Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.replication.fetch_sessions import FetchSessions
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.replica import Replica
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.core.replication.roles import Contact, Follower
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import RequestRefused

TOPIC = uuid.UUID(int=9)
FOLLOWER, EPOCH, NEXT_EPOCH = 2, 20, 40
PROPERTIES = {
    "process.roles": "broker",
    "broker.id": "1",
    "controller.connect": "101@controller-1:9093",
}
Answer = tuple[Error, dict[int, tuple[int, int]]]
"""The error, and of each partition in the answer its high watermark and how far its records go."""


class Leader:
    """Broker 1 leads partitions 0 and 1 in epoch 4; broker 2 follows."""

    def __init__(self) -> None:
        self.out = Outbox()
        isr_requests: Any = SimpleNamespace(can_ask=lambda: False)
        parsed = settings.read(PROPERTIES)
        policies = ReplicationPolicies()
        self.replicas = Replicas(parsed, isr_requests, policies, self.out)
        session: Any = SimpleNamespace(state=BrokerState.ACTIVE)
        self.sessions = FetchSessions(self.replicas, session, policies, self.out)
        self.image = Image()
        for broker in (1, FOLLOWER):
            self.register(broker, broker * 10)
        self.image.replay(r.TopicRecord(name="orders", topic_id=TOPIC), 30)
        for index in (0, 1):
            record = r.PartitionRecord(
                partition_id=index,
                topic_id=TOPIC,
                replicas=(1, 2),
                isr=(1, 2),
                leader=1,
                leader_epoch=4,
            )
            self.image.replay(record, 31 + index)
        self.replicas.adopt(self.image, [(TOPIC, 0), (TOPIC, 1)], Instant(0, 0))
        self.replicas.changed.clear()
        self.requests = 0
        self.now = Instant(0, 0)

    def register(self, broker: int, epoch: int) -> None:
        record = r.BrokerRecord(
            broker_id=broker,
            broker_epoch=epoch,
            end_points=(),
            fenced=False,
            incarnation_id=uuid.UUID(int=broker),
        )
        self.image.replay(record, epoch)

    def at(self, ms: int) -> Leader:
        """Time passes; what is due is done."""
        self.now = Instant(ms * 1_000_000, ms)
        self.release()
        return self

    def release(self) -> None:
        self.sessions.release(self.replicas.changed, self.now)
        self.replicas.changed.clear()

    def one(self, index: int) -> Replica:
        return self.replicas.by_key[TOPIC, index]

    def append(self, index: int) -> None:
        batch = record_batch.build([b"x"], 0, -1, 1)
        self.one(index).append(record_batch.parse(batch), batch)
        self.release()

    def fetch(
        self,
        ends: dict[int, int],
        session: tuple[int, int] = (0, 0),
        *,
        forgotten: tuple[int, ...] = (),
        epoch: int = EPOCH,
        leader_epoch: int = 4,
    ) -> None:
        """A fetch by the follower, whose logs of these partitions have these ends."""
        parts = tuple(
            m.FetchPartition(
                partition=index,
                fetch_offset=end,
                partition_max_bytes=1 << 20,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=4 if end else -1,
            )
            for index, end in ends.items()
        )
        gone = (m.ForgottenTopic(partitions=forgotten, topic_id=TOPIC),) if forgotten else ()
        request = m.FetchRequest(
            max_wait=500,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=(m.FetchTopic(partitions=parts, topic_id=TOPIC),) if parts else (),
            replica_state=m.ReplicaState(replica_id=FOLLOWER, replica_epoch=epoch),
            session_id=session[0],
            session_epoch=session[1],
            forgotten_topics_data=gone,
        )
        self.requests += 1
        received = Received(
            request_id=self.requests,
            listener="REPLICATION",
            client="broker-2#1",
            correlation=self.requests,
            message=request,
        )
        self.sessions.fetch(received, request, self.image, self.now)
        self.release()

    @property
    def answers(self) -> list[Answer]:
        """The answers since the last look."""
        found: list[Answer] = []
        for effect in self.out.drain():
            if isinstance(effect, Reply):
                assert isinstance(effect.message, m.FetchResponse)
                parts: dict[int, tuple[int, int]] = {}
                for topic in effect.message.responses:
                    for part in topic.partitions:
                        slice_ = part.records
                        end = slice_.end if isinstance(slice_, m.LogSlice) else -1
                        parts[part.partition_index] = (part.high_watermark, end)
                found.append((Error(effect.message.error_code), parts))
        return found


@pytest.fixture
def leader() -> Leader:
    return Leader()


NONE = Error.NONE


def test_a_full_fetch_is_answered_with_every_partition_at_once(leader: Leader) -> None:
    leader.append(0)
    leader.fetch({0: 0, 1: 0})
    assert leader.answers == [(NONE, {0: (0, 1), 1: (0, -1)})]


def test_later_fetches_and_their_answers_name_only_what_has_changed(leader: Leader) -> None:
    leader.append(0)
    leader.fetch({0: 0, 1: 0})
    leader.fetch({0: 1}, (1, 1))
    assert leader.one(0).high_watermark == 1
    _, *later = leader.answers
    assert later == [], "the high watermark alone ends no wait"
    leader.at(3).append(1)
    assert leader.answers == [(NONE, {0: (1, -1), 1: (0, 1)})], "the next records bring it"
    leader.fetch({1: 1}, (1, 2))
    leader.at(500)
    assert leader.answers == []
    leader.at(503)
    assert leader.answers == [(NONE, {1: (1, -1)})], "or once the time is up"
    leader.fetch({}, (1, 3))
    leader.at(1003)
    assert leader.answers == [(NONE, {})]


def test_a_fetch_from_no_present_session_is_refused(leader: Leader) -> None:
    leader.fetch({0: 0}, (7, 1))
    leader.fetch({0: 0, 1: 0})
    leader.fetch({}, (1, 2))
    leader.fetch({0: 0, 1: 0})
    leader.fetch({}, (1, 1))
    whole = (NONE, {0: (0, -1), 1: (0, -1)})
    unknown, wrong = Error.FETCH_SESSION_ID_NOT_FOUND, Error.INVALID_FETCH_SESSION_EPOCH
    assert leader.answers == [(unknown, {}), whole, (wrong, {}), whole, (unknown, {})]


def test_a_fetch_of_a_former_registration_is_refused_and_recorded(leader: Leader) -> None:
    """QC-19: the rule about it reads the leader's record."""
    leader.fetch({0: 0}, epoch=EPOCH - 1)
    refused, answer = leader.out.drain()[-2:]
    assert isinstance(refused, Note)
    assert isinstance(refused.body, RequestRefused)
    assert (refused.body.requester, refused.body.error) == (FOLLOWER, "STALE_BROKER_EPOCH")
    assert isinstance(answer, Reply)
    assert answer.message == m.FetchResponse(error_code=Error.STALE_BROKER_EPOCH, responses=())


def test_a_session_has_a_number_above_0(leader: Leader) -> None:
    """KIP-227: 0 means that there is none."""
    for _ in range(2):
        leader.fetch({0: 0, 1: 0})
    sent = [one.message for one in leader.out.drain() if isinstance(one, Reply)]
    ids = [one.session_id for one in sent if isinstance(one, m.FetchResponse)]
    assert len(set(ids)) == 2
    assert min(ids) > 0


def test_a_new_session_ends_the_wait_of_the_one_before(leader: Leader) -> None:
    leader.fetch({0: 0, 1: 0})
    leader.fetch({}, (1, 1))
    assert len(leader.answers) == 1
    leader.fetch({0: 0, 1: 0})
    assert [error for error, _ in leader.answers] == [Error.FETCH_SESSION_ID_NOT_FOUND, NONE]


def test_records_that_a_follower_did_not_take_are_sent_again(leader: Leader) -> None:
    leader.append(0)
    leader.fetch({0: 0})
    leader.fetch({}, (1, 1))
    assert leader.answers == [(NONE, {0: (0, 1)}), (NONE, {0: (0, 1)})]


def test_a_follower_whose_log_diverges_in_epoch_0_learns_it_at_once(leader: Leader) -> None:
    """RP-15: it has a batch that this leader never had."""
    leader.fetch({0: 0, 1: 0})
    assert len(leader.answers) == 1
    leader.fetch({0: 1}, (1, 1))
    assert leader.answers == [(NONE, {0: (0, -1)})]
    assert leader.one(0).end_of(FOLLOWER) == 0, "a position that is no part of this log"


def test_a_follower_that_is_ahead_of_its_leader_in_the_same_epoch_learns_where_that_ends(
    leader: Leader,
) -> None:
    """RP-15."""
    leader.append(0)
    leader.fetch({0: 2})
    sent = [one.message for one in leader.out.drain() if isinstance(one, Reply)]
    (part,) = sent[-1].responses[0].partitions if isinstance(sent[-1], m.FetchResponse) else ()
    assert part.diverging_epoch == m.EpochEndOffset(epoch=4, end_offset=1)
    assert leader.one(0).end_of(FOLLOWER) < 0


def test_a_parked_fetch_is_due_when_its_time_is_up(leader: Leader) -> None:
    leader.fetch({0: 0, 1: 0})
    assert leader.sessions.deadline_ns() is None
    leader.at(10).fetch({}, (1, 1))
    assert leader.sessions.deadline_ns() == 510 * 1_000_000
    assert len(leader.answers) == 1
    leader.at(510)
    assert leader.answers == [(NONE, {})]
    assert leader.sessions.deadline_ns() is None


def test_a_fetch_looks_only_at_partitions_that_have_changed(leader: Leader) -> None:
    """KIP-227: a leader has many that rest."""
    leader.fetch({0: 0, 1: 0})
    looked_up = Mock(wraps=leader.replicas.by_key.get)
    resting: Any = SimpleNamespace(get=looked_up)
    leader.replicas.by_key = resting
    leader.at(10).fetch({}, (1, 1))
    leader.at(510)
    assert looked_up.call_args_list == []
    leader.fetch({0: 0}, (1, 2))
    assert {key for ((key,), _) in looked_up.call_args_list} == {(TOPIC, 0)}
    looked_up.reset_mock()
    leader.at(1010)
    assert looked_up.call_args_list == [], "it had no more to say of the partition"
    assert leader.answers[1:] == [(NONE, {}), (NONE, {})]


def test_an_error_is_repeated_until_the_follower_has_another_position(leader: Leader) -> None:
    leader.fetch({0: 0}, leader_epoch=3)
    leader.fetch({}, (1, 1))
    leader.fetch({0: 0}, (1, 2), leader_epoch=4)
    leader.at(500)
    assert leader.answers == [(NONE, {0: (-1, -1)}), (NONE, {0: (-1, -1)}), (NONE, {0: (0, -1)})]


def test_a_partition_that_was_forgotten_is_in_no_answer(leader: Leader) -> None:
    leader.fetch({0: 0, 1: 0})
    leader.fetch({}, (1, 1), forgotten=(0,))
    leader.append(0)
    leader.append(1)
    assert leader.answers[1:] == [(NONE, {1: (0, 1)})]


def test_a_partition_that_was_forgotten_before_its_records_were_taken_is_in_no_answer(
    leader: Leader,
) -> None:
    """The follower has another leader there."""
    leader.append(0)
    leader.fetch({0: 0, 1: 0})
    leader.fetch({}, (1, 1), forgotten=(0,))
    assert len(leader.answers) == 1
    leader.append(1)
    assert leader.answers == [(NONE, {1: (0, 1)})]


def test_what_was_not_counted_counts_once_the_follower_is_registered(leader: Leader) -> None:
    """QC-19: the leader may hear of a registration after the first fetch."""
    leader.append(0)
    leader.fetch({0: 1}, epoch=NEXT_EPOCH)
    assert leader.one(0).end_of(FOLLOWER) < 0
    leader.register(FOLLOWER, NEXT_EPOCH)
    leader.fetch({}, (1, 1), epoch=NEXT_EPOCH)
    assert leader.one(0).end_of(FOLLOWER) == 1
    assert leader.one(0).high_watermark == 1


def test_a_follower_that_registers_again_in_its_session_counts_as_that_registration(
    leader: Leader,
) -> None:
    """QC-19: also in the partitions that its fetches do not name, though the leader hears of the
    registration only after the first fetch."""
    leader.fetch({0: 0, 1: 0})
    leader.fetch({}, (1, 1), epoch=NEXT_EPOCH)
    leader.at(500)
    leader.register(FOLLOWER, NEXT_EPOCH)
    leader.fetch({}, (1, 2), epoch=NEXT_EPOCH)
    for index in (0, 1):
        assert leader.one(index).followers[FOLLOWER].broker_epoch == NEXT_EPOCH


def test_a_follower_that_was_forgotten_while_it_waits_counts_with_its_next_fetch(
    leader: Leader,
) -> None:
    """As after a snapshot: the follower has no reason to name the partition."""
    leader.fetch({0: 0, 1: 0})
    leader.at(10).fetch({}, (1, 1))
    leader.one(0).forget(FOLLOWER)
    leader.release()
    assert leader.one(0).followers[FOLLOWER].end == -1
    leader.at(600).fetch({}, (1, 2))
    assert leader.one(0).followers[FOLLOWER].end == 0


def test_a_member_that_was_to_leave_the_isr_of_a_former_term_stays_in_that_of_the_next(
    leader: Leader,
) -> None:
    one = leader.one(0)
    one.expel(FOLLOWER)
    assert one.laggards(leader.now, 10**9) == (FOLLOWER,)
    for epoch, broker in ((5, FOLLOWER), (6, 1)):
        one.adopt(replace(one.partition, leader=broker, leader_epoch=epoch), leader.now)
    assert one.leading
    assert one.laggards(leader.now, 10**9) == ()


def test_each_fetch_of_its_session_shows_that_a_follower_has_the_whole_log(leader: Leader) -> None:
    """RP-09: also in the partitions that the fetch does not name."""
    leader.fetch({0: 0, 1: 0})
    for ms in (500, 1000, 1500):
        leader.at(ms).fetch({}, (1, ms // 500))
    behind = leader.one(0).followers[FOLLOWER]
    assert behind.caught_up_ns == leader.now.monotonic_ns
    leader.append(0)
    leader.at(2000).fetch({1: 0}, (1, 4))
    assert behind.caught_up_ns == 1500 * 1_000_000
    assert leader.one(1).followers[FOLLOWER].caught_up_ns == 2000 * 1_000_000


def test_a_follower_that_begins_again_had_the_whole_log_up_to_its_last_fetch(
    leader: Leader,
) -> None:
    """RP-09: as after the loss of its disk. The fetch before did not name the partition."""
    leader.append(0)
    leader.at(100).fetch({0: 1, 1: 0})
    leader.at(700).fetch({}, (1, 1))
    leader.at(2000).fetch({0: 0}, (1, 2))
    assert leader.one(0).followers[FOLLOWER].caught_up_ns == 700 * 1_000_000


def test_a_fetch_does_not_show_that_a_follower_has_what_left_its_session(leader: Leader) -> None:
    """RP-09."""
    leader.at(100).fetch({0: 0, 1: 0})
    leader.at(700).fetch({}, (1, 1), forgotten=(0,))
    leader.at(2000).fetch({}, (1, 2))
    assert leader.one(0).followers[FOLLOWER].caught_up_ns == 100 * 1_000_000
    assert leader.one(1).followers[FOLLOWER].caught_up_ns == 2000 * 1_000_000


def test_a_refused_fetch_does_not_show_that_a_follower_has_what_was_appended(
    leader: Leader,
) -> None:
    """RP-09: it had the whole log before."""
    leader.at(100).fetch({0: 0, 1: 0})
    leader.append(0)
    leader.at(2000).fetch({0: 0}, (1, 1), leader_epoch=3)
    assert leader.one(0).followers[FOLLOWER].caught_up_ns == 100 * 1_000_000
    assert leader.one(1).followers[FOLLOWER].caught_up_ns == 2000 * 1_000_000


@given(st.lists(st.tuples(st.sampled_from(["append", "fetch", "lag"]), st.integers(1, 5))))
def test_a_follower_is_known_as_if_every_fetch_named_every_partition(
    steps: list[tuple[str, int]],
) -> None:
    """The reference is what Kafka counts at a fetch that names the partition."""
    contact, shared = Contact(), Follower()
    caught_up, fetched_ns, leader_end = 0, 0, 0
    end = log_end = now_ns = 0
    for what, count in steps:
        now_ns += count
        if what == "append":
            log_end += count
            shared.fall_behind()
            continue
        before, first = end, fetched_ns == 0
        if what == "fetch":  # it has what the fetch before was answered
            end = leader_end
        if end >= log_end:
            caught_up = now_ns
        elif end >= leader_end:
            caught_up = max(caught_up, fetched_ns)
        fetched_ns, leader_end = now_ns, log_end
        if first or end != before or end < log_end:
            shared.fetched(end, log_end, contact, now_ns)
        contact.last_ns = now_ns
        assert (shared.caught_up_ns, shared.fetched_ns) == (caught_up, fetched_ns)


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 9)))))
def test_deadlines_know_the_earliest_time_of_all(changes: list[tuple[int, int | None]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    times: dict[int, int] = {}
    for key, at_ns in changes:
        if at_ns is None:
            deadlines.drop(key)
            times.pop(key, None)
        else:
            deadlines.set(key, at_ns)
            times[key] = at_ns
        assert deadlines.earliest_ns() == min(times.values(), default=None)
    assert sorted(deadlines.due(5)) == sorted(key for key, at_ns in times.items() if at_ns <= 5)
    assert deadlines.earliest_ns() == min((t for t in times.values() if t > 5), default=None)
