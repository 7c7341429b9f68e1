"""Elections: the replicas that may become leader, and the choice among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    FaultHealed,
    FaultInjected,
    Finding,
    Findings,
    Rule,
    RunEnd,
    Violated,
    judged,
    on,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeclared,
    BrokerStopping,
    ControllerBegan,
    ControllerElected,
    ControllerEnded,
    ControllerResigned,
    HeartbeatAnswered,
    HeartbeatSent,
    IsrPrepared,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatSent,
    PartitionCommitted,
    ReplicaStood,
    SessionChanged,
    TopicCommitted,
    broker_of,
    partition_at,
    partition_of,
)
from fencepost_kafka.committed import (
    BROKER_NEWS,
    Brokers,
    Partitions,
    TopicPartition,
    begins,
    eligible_leaders,
    is_fenced,
)
from fencepost_suites.common.fenced import LOG_KINDS, FencedAt

KNOWN_WITHIN_MS = 10_000
"""How long after a broker has gone a controller that watches its registration may not know it."""
STOPPING = 3
"""The target state of a stopping broker in KIP-343."""


class _Election(Struct, frozen=True):
    """A leader that a record of the log names, and the members of the ISR before; of a new
    partition, those of its first ISR."""

    at: Cause
    body: PartitionCommitted
    members: tuple[int, ...]


@dataclass(slots=True)
class _Cluster:
    partitions: Partitions = field(default_factory=Partitions)
    brokers: Brokers = field(default_factory=Brokers)
    fenced: FencedAt = field(default_factory=FencedAt)
    elections: list[_Election] = field(default_factory=list)
    out_ns: dict[int, int] = field(default_factory=dict)
    """Each broker that is not live -> since when."""
    suspects: list[tuple[int, int, Deadline]] = field(default_factory=list)
    """Elections long after all members were out: that of the leader, and the position of it."""

    def note_time(self, at_ns: int) -> None:
        """Records since when each broker is out."""
        for broker in self.brokers.newest:
            if not self.brokers.fenced(broker):
                self.out_ns.pop(broker, None)
            else:
                self.out_ns.setdefault(broker, at_ns)


@final
class DeadIsrHasNoLeader(Rule[_Cluster]):
    """RP-29. A broker is live if the records say that it is not fenced. An empty ISR was never
    stored; that of a new partition is the one of its first record. Replicas that are eligible
    beside the ISR count as members of it. Where fencings and elections are records of one log,
    their offsets are their order. Elsewhere a controller may learn late that a broker is gone, and
    an observer may learn of the two in either order: then a member must have been out for
    `KNOWN_WITHIN_MS` when it is elected, without a registration between the two. Exercised by a
    partition left without a leader while a replica outside the ISR is live: its last leader is
    fenced by then, or by the next record."""

    clause = "RP-29"
    state = _Cluster

    @on(TopicCommitted, PartitionCommitted, *BROKER_NEWS, *LOG_KINDS)
    def step(self, state: _Cluster, event: Event, body: Struct) -> Findings:
        state.fenced.take(event)
        match body:
            case BrokerCommitted() | BrokerDeclared():
                state.brokers.take(body)
                state.note_time(event.at_ns)
            case TopicCommitted():
                state.partitions.forget(body)
            case PartitionCommitted():
                return self._changed(state, event, body)
        return NOTHING

    def _changed(self, state: _Cluster, event: Event, body: PartitionCommitted) -> Findings:
        news, before = state.partitions.take(body)
        if not news:
            return NOTHING
        if before is None:
            if (
                begins(body)
                and body.leader >= 0
                # A new partition has no ISR before. Its first ISR may have live replicas only, so
                # that is judged where fencings and partitions are records of one log, whose offsets
                # order them.
                and state.fenced.in_log(event.process, body.offset)
            ):
                state.elections.append(_Election(event.ref, body, tuple(sorted(body.isr))))
            return NOTHING
        # Kafka may elect an eligible replica outside the ISR (KIP-966): it has all that is
        # committed, by the controllers' own account.
        members = eligible_leaders(before)
        # An empty ISR was never stored, so there is no message that a leader could lack.
        dead = bool(members) and all(state.brokers.fenced(member) for member in members)
        if dead and body.leader >= 0 and body.leader not in members:
            return (_made_leader(event.ref, body, members),)
        if members and body.leader >= 0 and body.leader != before.leader:
            self._elected(state, event, body, members)
        # The last leader's own fencing may come with the very next record.
        gone = members and all(state.brokers.fenced(one) for one in members - {before.leader})
        others = [r for r in body.replicas if r not in members and not state.brokers.fenced(r)]
        if gone and body.leader < 0 and others:
            return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    @staticmethod
    def _elected(
        state: _Cluster, event: Event, body: PartitionCommitted, members: set[int]
    ) -> None:
        # Judged at the end, when the fencings of all offsets are known: an observer may report the
        # two records in either order.
        if state.fenced.in_log(event.process, body.offset):
            state.elections.append(_Election(event.ref, body, tuple(sorted(members))))
            return
        # The member that went last decides: it was out for the shortest time.
        out_ns = [state.out_ns.get(member, event.at_ns) for member in members]
        known_ns = max(out_ns, default=event.at_ns)
        if event.at_ns - known_ns <= KNOWN_WITHIN_MS * MS:
            return
        broken = _made_leader(event.ref, body, members)
        bound_ns = KNOWN_WITHIN_MS * MS
        late = Deadline(broken, (event.process,), known_ns, event.at_ns, bound_ns)
        state.suspects.append((body.leader, body.offset, late))

    def end(self, state: _Cluster, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for one in state.elections:
            causes = [state.fenced.by(member, one.body.offset) for member in one.members]
            known = [event.ref for event in causes if event is not None]
            if causes and len(known) == len(causes):
                found.append(_made_leader(one.at, one.body, one.members, tuple(known)))
        late = [
            one
            for leader, offset, one in state.suspects
            # Where the log has the leader's own records, and it was not fenced at that offset, it
            # had registered anew in between.
            if leader not in state.fenced.records or state.fenced.by(leader, offset) is not None
        ]
        return (*found, *judged(late, end))


def _made_leader(
    at: Cause, body: PartitionCommitted, members: Iterable[int], because: tuple[Cause, ...] = ()
) -> Violated:
    return violated(
        at,
        Evidence.PEER,
        "broker {leader} was made leader of {partition} while no member of its ISR {isr} was live",
        because,
        leader=broker_of(body.leader),
        partition=partition_of(body),
        isr=tuple(sorted(members)),
    )


@dataclass(slots=True)
class _Failed:
    """A fenced broker: the partitions it led with full ISRs, and their leaders since."""

    survivors: tuple[int, ...]
    due: dict[TopicPartition, int]
    """Each partition -> the first live member of its ISR, in replica order."""
    eligible_leaders: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Failures:
    partitions: Partitions = field(default_factory=Partitions)
    brokers: Brokers = field(default_factory=Brokers)
    failed: dict[int, _Failed] = field(default_factory=dict)


def _uneven(eligible_leaders: Iterable[int], survivors: Sequence[int]) -> bool:
    # A survivor that got nothing counts, with 0.
    counts = Counter({broker: 0 for broker in survivors})
    counts.update(eligible_leaders)
    return max(counts.values()) - min(counts.values()) > 1


@final
class LeadershipsSpread(Rule[_Failures]):
    """RP-02. Judged for a broker that led, with full ISRs, at least as many partitions as there are
    survivors, if the next replica of each list would spread them evenly. Without a controller a
    replica that has waited for its turn may lead instead. Not judged if a survivor is fenced before
    all of them have moved. Exercised by the record that moves the last of them."""

    clause = "RP-02"
    state = _Failures

    @on(TopicCommitted, PartitionCommitted, *BROKER_NEWS, ReplicaStood)
    def step(self, state: _Failures, event: Event, body: Struct) -> Findings:
        match body:
            case BrokerCommitted() | BrokerDeclared():
                news, before = state.brokers.take(body)
                if news:
                    state.failed.pop(body.broker_id, None)
                if news and is_fenced(body) and before is not None and not before.fenced:
                    self._fenced(state, body.broker_id)
            case TopicCommitted():
                state.partitions.forget(body)
            case PartitionCommitted():
                return self._moved(state, event, body)
            case ReplicaStood(won=True):
                self._elected(state, body)
        return NOTHING

    @staticmethod
    def _elected(state: _Failures, body: ReplicaStood) -> None:
        """Without a controller replicas race: one that stood in its turn may win."""
        place = (body.topic, body.partition)
        for failed in state.failed.values():
            if place in failed.due:
                replicas = state.partitions.newest[place].replicas
                standing = body.standing or failed.survivors
                turns = [b for b in replicas[1:] if b in standing]
                if body.broker_id in turns:
                    due_ms = body.preferred_ms * (turns.index(body.broker_id) + 1)
                    # It stood in its turn, although an earlier one was to lead: the earlier one may
                    # have been unable to. Counted as if that one had won.
                    if body.waited_ms >= due_ms:
                        failed.eligible_leaders.setdefault(place, failed.due[place])

    @staticmethod
    def _fenced(state: _Failures, broker: int) -> None:
        # A survivor fails, too: what the first one left is moved to others for another reason.
        state.failed = {b: one for b, one in state.failed.items() if broker not in one.survivors}
        survivors = state.brokers.live()
        due: dict[TopicPartition, int] = {}
        for place in state.partitions.led_by(broker):
            one = state.partitions.newest[place]
            eligible_leaders = [b for b in one.replicas if b in survivors]
            if set(one.isr) == set(one.replicas) and eligible_leaders:
                due[place] = eligible_leaders[0]
        # With fewer partitions than survivors nothing can be spread, and if the placement itself
        # leads to an uneven result, the election is not to blame.
        if len(due) >= len(survivors) >= 2 and not _uneven(due.values(), survivors):
            state.failed[broker] = _Failed(survivors, due)

    @staticmethod
    def _moved(state: _Failures, event: Event, body: PartitionCommitted) -> Findings:
        news, before = state.partitions.take(body)
        if not news or before is None:
            return NOTHING
        place = (body.topic, body.partition)
        former, failed = next(
            ((b, one) for b, one in state.failed.items() if place in one.due), (-1, None)
        )
        if failed is None or body.leader in (-1, former):
            return NOTHING
        failed.eligible_leaders.setdefault(place, body.leader)
        if len(failed.eligible_leaders) < len(failed.due):
            return NOTHING
        del state.failed[former]
        led = list(failed.eligible_leaders.values())
        if _uneven(led, failed.survivors):
            broken = violated(
                event.ref,
                Evidence.PEER,
                "of the {due} partitions that broker {former} led, the survivors {survivors} got "
                "{got}",
                due=len(failed.due),
                former=broker_of(former),
                survivors=tuple(failed.survivors),
                got=tuple(led.count(broker) for broker in failed.survivors),
                places=tuple(partition_at(*one) for one in failed.due),
            )
            return (broken,)
        return (Exercised(event.ref, Evidence.PEER),)


@dataclass(slots=True)
class _Preferred:
    partitions: Partitions = field(default_factory=Partitions)
    brokers: Brokers = field(default_factory=Brokers)
    stopping: set[int] = field(default_factory=set)
    owed: dict[TopicPartition, int] = field(default_factory=dict)
    """Partitions that the preferred replica could lead -> since when."""
    suspects: list[Deadline] = field(default_factory=list)
    balance_ms: int = 0
    """How often the controller over ZooKeeper checks, as it has recorded."""
    led: dict[TopicPartition, PartitionCommitted] = field(default_factory=dict)
    """Each partition as it was when it had a leader last."""
    checked: dict[TopicPartition, tuple[Cause, int]] = field(default_factory=dict)
    """Without a controller: how each partition's leader began, and how often it checks."""


@final
class PreferredLeadsAgain(Rule[_Preferred]):
    """RP-21. The controller reports how often it checks. Twice that interval and two seconds are
    allowed, within one controller's term, for a broker that is neither fenced nor stopping.
    Without a controller the leaders check: the time counts from the last change of a session or a
    fault on, and is judged at the end. Exercised when leadership returns from a leader that could
    have continued."""

    clause = "RP-21"
    state = _Preferred

    @on(
        TopicCommitted,
        PartitionCommitted,
        *BROKER_NEWS,
        HeartbeatSent,
        HeartbeatAnswered,
        ControllerElected,
        ControllerResigned,
        MetadataHeartbeatAnswered,
        MetadataHeartbeatSent,
        ControllerBegan,
        ControllerEnded,
        IsrPrepared,
        SessionChanged,
        BrokerStopping,
        FaultInjected,
        FaultHealed,
    )
    def step(self, state: _Preferred, event: Event, body: Struct) -> Findings:
        match body:
            # A controller that answers heartbeats is at work, so it could have checked. That is
            # when its duty is looked at; a time without such an answer proves nothing.
            case HeartbeatAnswered():
                if body.active and body.error == "NONE" and body.balance_ms and state.owed:
                    self._looked(state, event, body.balance_ms)
            case MetadataHeartbeatAnswered(active=True, error="NONE"):
                if state.balance_ms and state.owed:
                    self._looked(state, event, state.balance_ms)
            case MetadataHeartbeatSent():
                stops = body.target_state == STOPPING
                (state.stopping.add if stops else state.stopping.discard)(body.broker_id)
            case PartitionCommitted():
                return self._changed(state, event, body)
            case HeartbeatSent(target_state="SHUTDOWN"):
                state.stopping.add(body.broker_id)
            case HeartbeatSent() if body.broker_epoch < 0:
                state.stopping.discard(body.broker_id)
            case BrokerCommitted() | BrokerDeclared():
                state.brokers.take(body)
            case TopicCommitted():
                for place in state.partitions.forget(body):
                    state.owed.pop(place, None)
                    state.led.pop(place, None)
            case ControllerBegan():
                state.balance_ms = body.balance_ms
                # Each controller begins its interval anew.
                state.owed = dict.fromkeys(state.owed, event.at_ns)
            case IsrPrepared():
                state.checked[body.topic, body.partition] = (event.ref, body.balance_ms)
            case SessionChanged() | BrokerStopping() | FaultInjected() | FaultHealed():
                if state.checked:
                    state.owed = dict.fromkeys(state.owed, event.at_ns)
            case ControllerElected() | ControllerResigned() | ControllerEnded():
                state.owed = dict.fromkeys(state.owed, event.at_ns)
        return NOTHING

    @staticmethod
    def _changed(state: _Preferred, event: Event, body: PartitionCommitted) -> Findings:
        news, before = state.partitions.take(body)
        if not news:
            return NOTHING
        place = (body.topic, body.partition)
        preferred = body.replicas[0]
        moving = body.adding or body.removing
        # During a reassignment the list of replicas has both old and new ones, so its first is not
        # the preferred one yet.
        if body.leader in (preferred, -1) or preferred not in body.isr or moving:
            state.owed.pop(place, None)
        else:
            state.owed.setdefault(place, event.at_ns)
        if before is not None and before.leader < 0:
            before = state.led.get(place)  # without a controller, no broker leads in between
        if body.leader >= 0:
            state.led[place] = body
        if before is None or before.leader in (preferred, -1) or body.leader != preferred:
            return NOTHING
        # A leader that failed had to be replaced. Only where it could have continued did balancing
        # return the leadership.
        gone_on = before.leader in body.isr and not state.brokers.fenced(before.leader)
        again = body.replicas == before.replicas and preferred in before.isr
        return (Exercised(event.ref, Evidence.PEER),) if gone_on and again else NOTHING

    @staticmethod
    def _looked(state: _Preferred, event: Event, balance_ms: int) -> None:
        allowed_ns = (2 * balance_ms + 2_000) * MS
        for place, since_ns in list(state.owed.items()):
            one = state.partitions.newest[place]
            preferred = one.replicas[0]
            if state.brokers.fenced(preferred) or preferred in state.stopping:
                state.owed[place] = event.at_ns
            elif event.at_ns - since_ns > allowed_ns:
                state.owed[place] = event.at_ns
                broken = violated(
                    event.ref,
                    Evidence.PEER,
                    "broker {broker}, the preferred replica of {partition}, has been in its ISR "
                    "for {since_ns}, and broker {leader} leads",
                    broker=broker_of(preferred),
                    partition=partition_at(*place),
                    since_ns=event.at_ns - since_ns,
                    leader=broker_of(one.leader),
                )
                late = Deadline(broken, (event.process,), since_ns, event.at_ns, allowed_ns)
                state.suspects.append(late)

    def end(self, state: _Preferred, end: RunEnd) -> Findings:
        late = list(state.suspects)
        for place, since_ns in state.owed.items():
            ref, balance_ms = state.checked.get(place, (None, 0))
            one = state.partitions.newest[place]
            allowed_ns = (2 * balance_ms + 2_000) * MS
            open_ns = end.ended_at_ns - since_ns
            fenced = state.brokers.fenced(one.replicas[0])
            if ref is None or not balance_ms or fenced or open_ns <= allowed_ns:
                continue
            broken = violated(
                ref,
                Evidence.PEER,
                "broker {broker}, the preferred replica of {partition}, has been in its ISR for "
                "{since_ns}, and broker {leader} leads at the end",
                broker=broker_of(one.replicas[0]),
                partition=partition_at(*place),
                since_ns=open_ns,
                leader=broker_of(one.leader),
            )
            late.append(Deadline(broken, (ref.process,), since_ns, end.ended_at_ns, allowed_ns))
        return judged(late, end)
