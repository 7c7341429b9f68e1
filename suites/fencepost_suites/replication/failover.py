"""A leader that fails or steps down: what happens to writes in flight (RP-11 to RP-13 are the
replication design's three cases of when it fails)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from msgspec import Struct

from fencepost import (
    Cause,
    Event,
    Evidence,
    Exercised,
    FaultHealed,
    FaultInjected,
    Finding,
    Key,
    ProcessExited,
    RunEnd,
    Undecided,
    Violated,
)
from fencepost_kafka import (
    BrokerStateChanged,
    FollowingStarted,
    HighWatermarkAdvanced,
    LeadershipEnded,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    PartitionCommitted,
    ProduceAnswered,
    ProduceCompleted,
    ProduceInvoked,
    RequestRefused,
)
from fencepost_kafka.active_faults import ActiveFault, ActiveFaults
from fencepost_kafka.vocabulary import CLIENTS
from fencepost_suites.common.keys import NOTHING, by_partition, whole_run
from fencepost_suites.common.replica_logs import ReplicaLogs
from fencepost_suites.common.words import span

FOUND_WITHIN_NS = 8_000_000_000
"""A client gives up on a silent connection within five seconds, and then asks other brokers."""
HANDOVER_NS = 1_000_000_000
"""A leader that steps down within this time of its successor's start was alive at the handover."""
ANSWERED_WITHIN_NS = 5_000_000_000
"""A leader that steps down answers at once; an event later than this shows that it is alive."""


class _Unfound(Struct, frozen=True):
    """A leader that a write did not find between two moments, unless the leader stood still."""

    violated: Violated
    leader: str
    from_ns: int
    to_ns: int


@dataclass(slots=True)
class _Search:
    """The leader of one partition since when, the clients that reached it, and the open writes."""

    leader: str = ""
    since_ns: int = 0
    until_ns: int | None = None
    """When a later leader epoch was stored, whatever it knows of it."""
    next_epoch: int = -1
    """That leader epoch; it may be its own next one."""
    epoch: int = -1
    log_end: int = 0
    ref: Cause | None = None
    """The event by which it began to lead; None: no leader is known."""
    reached: dict[str, int] = field(default_factory=dict)
    """client -> when it last reached the present leader."""
    open: dict[str, tuple[int, str]] = field(default_factory=dict)
    """operation -> when it was invoked, and by which client."""
    former: _Search | None = None
    """The state of the former leader, which has not yet recorded that it stepped down."""
    suspects: list[_Unfound] = field(default_factory=list)
    """Judged at the end, when it is known how long each leader served."""

    def depose(self, body: PartitionCommitted, at_ns: int) -> None:
        """A later leader epoch is stored."""
        if self.until_ns is None and body.leader_epoch > self.epoch:
            self.until_ns, self.next_epoch = at_ns, body.leader_epoch
        if self.former is not None:
            self.former.depose(body, at_ns)

    def led_until(self, at_ns: int) -> int:
        """Until when it led, by its own word and by what is stored."""
        return at_ns if self.until_ns is None else min(at_ns, self.until_ns)

    def of(self, process: str) -> _Search | None:
        """The state of a process that leads, or led before."""
        if process == self.leader:
            return self
        return self.former if self.former is not None and process == self.former.leader else None


@dataclass(slots=True)
class _Searches:
    """The partitions, and when brokers' processes served no client: by their own word, or as they
    had ended."""

    partitions: dict[tuple[str, int], _Search] = field(default_factory=dict)
    out: dict[str, int] = field(default_factory=dict)
    """process -> since when it is not active."""
    spans: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """process -> when it was not active."""
    faults: ActiveFaults = field(default_factory=ActiveFaults)
    cuts: list[tuple[ActiveFault, int]] = field(default_factory=list)
    """The faults that are healed, with when they were."""

    def change(self, process: str, state: str, at_ns: int) -> None:
        """A broker's state has changed. Before it is active for the first time, it was not."""
        if state != "ACTIVE":
            self.out.setdefault(process, at_ns)
        elif process in self.out or process not in self.spans:
            self.spans.setdefault(process, []).append((self.out.pop(process, 0), at_ns))

    def strike(self, event: Event) -> None:
        """A fault begins, or is healed."""
        healed = self.faults.take(event)
        if healed is not None:
            self.cuts.append((healed, event.at_ns))

    def _cut(self, one: _Unfound) -> Iterator[tuple[int, int]]:
        """When a fault affected the links of clients to the leader of a suspect."""
        active = ((fault, one.to_ns) for fault in self.faults.now.values())
        for fault, until_ns in (*self.cuts, *active):
            if fault.directions and fault.between(one.leader, CLIENTS):
                yield fault.began_ns, until_ns

    def served_ns(self, one: _Unfound, end: RunEnd) -> int:
        """How long the leader of a suspect served, and clients could reach it."""
        spans = list(self.spans.get(one.leader, ()))
        if one.leader in self.out:
            spans.append((self.out[one.leader], one.to_ns))
        spans += self._cut(one)
        out_ns, counted_ns = 0, one.from_ns
        for began_ns, ended_ns in sorted(spans):
            since_ns, counted_ns = max(began_ns, counted_ns), max(ended_ns, counted_ns)
            out_ns += max(0, min(one.to_ns, ended_ns) - since_ns)
        stalled_ns = end.stalled_ns(one.from_ns, one.to_ns, one.leader)
        return one.to_ns - one.from_ns - max(out_ns, stalled_ns)


@final
class ResendFindsLeader(Struct, frozen=True):
    """RP-11. Exercised by a write invoked under one leader and stored by the next. Broken by a
    write that fails, or is still open when leadership moves on, although a leader served for eight
    seconds without a request from its client. A process that stands still, is not active or has
    ended serves nothing, and one whose link to the clients a fault affects need not be reached."""

    clause: str = "RP-11"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            *(ProduceInvoked, ProduceCompleted, ProduceAnswered, RequestRefused),
            *(LeadershipStarted, LeadershipEnded, PartitionCommitted, BrokerStateChanged),
            *(ProcessExited, FaultInjected, FaultHealed),
        }
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Searches:
        return _Searches()

    def step(self, state: _Searches, event: Event) -> tuple[_Searches, Sequence[Finding]]:
        body: Any = event.body
        if isinstance(body, BrokerStateChanged):
            state.change(event.process, body.new, event.at_ns)
            return state, NOTHING
        if isinstance(body, ProcessExited):
            state.change(body.ended, "ended", event.at_ns)
            return state, NOTHING
        if isinstance(body, FaultInjected | FaultHealed):
            state.strike(event)
            return state, NOTHING
        place = (body.topic, body.partition)
        before = state.partitions.get(place) or _Search()
        state.partitions[place], found = self._step(before, event)
        return state, found

    def _step(self, state: _Search, event: Event) -> tuple[_Search, Sequence[Finding]]:
        body = event.body
        if isinstance(body, ProduceInvoked):
            state.open[body.operation] = (event.at_ns, event.process)
        elif isinstance(body, ProduceAnswered | RequestRefused):
            led = state.of(event.process)
            if led is not None:
                led.reached[body.client] = event.at_ns
        elif isinstance(body, ProduceCompleted):
            invoked = state.open.pop(body.operation, None)
            if invoked is not None and state.ref is not None:
                return state, self._completed(state, event, body, invoked[0])
        elif isinstance(body, PartitionCommitted):
            state.depose(body, event.at_ns)
        elif isinstance(body, LeadershipStarted):
            if event.process == state.leader:
                if state.until_ns is not None and body.leader_epoch != state.next_epoch:
                    state.since_ns = event.at_ns  # it was deposed meanwhile, and is elected anew
                state.epoch, state.until_ns = body.leader_epoch, None
            else:
                former = replace(state, former=None)
                new = _Search(
                    leader=event.process,
                    since_ns=event.at_ns,
                    epoch=body.leader_epoch,
                    log_end=body.log_end,
                    ref=event.ref,
                    reached={},
                    open=state.open,
                    former=former,
                    suspects=state.suspects,
                )
                return new, NOTHING
        elif isinstance(body, LeadershipEnded):
            if event.process == state.leader:
                self._unheard(state, event)
                return _Search(open=state.open, suspects=state.suspects), NOTHING
            left = state.of(event.process)
            if left is not None:
                state.former = None
                # A former leader that steps down later may have been dead or cut off for long, so
                # that no client found it proves nothing.
                if event.at_ns - state.since_ns <= HANDOVER_NS:
                    self._unheard(left, event)
        return state, NOTHING

    @staticmethod
    def _unheard(state: _Search, event: Event) -> None:
        """Suspects the write that has been open longest while a leader steps down which its client
        never reached."""
        if state.ref is None:
            return
        for operation, (invoked_ns, client) in state.open.items():
            if client in state.reached:
                continue
            from_ns = max(invoked_ns, state.since_ns)
            until_ns = state.led_until(event.at_ns)
            message = (
                f"{operation} of {client} was open for {span(until_ns - from_ns)} while "
                f"{state.leader} led, and never reached it"
            )
            violated = Violated(event.ref, Evidence.CLIENT, message, (state.ref,))
            state.suspects.append(_Unfound(violated, state.leader, from_ns, until_ns))
            return

    @staticmethod
    def _completed(
        state: _Search, event: Event, body: ProduceCompleted, invoked_ns: int
    ) -> Sequence[Finding]:
        if body.outcome == "ok":
            later = invoked_ns < state.since_ns and body.offset >= state.log_end
            return (Exercised(event.ref, Evidence.CLIENT),) if later else NOTHING
        if event.process in state.reached:
            return NOTHING
        from_ns = max(invoked_ns, state.since_ns)
        until_ns = state.led_until(event.at_ns)
        message = (
            f"{body.operation} of {event.process} ended as {body.outcome} ({body.error}); "
            f"{state.leader} had led {body.topic}-{body.partition} for "
            f"{span(event.at_ns - state.since_ns)} and was never reached"
        )
        assert state.ref is not None
        violated = Violated(event.ref, Evidence.CLIENT, message, (state.ref,))
        state.suspects.append(_Unfound(violated, state.leader, from_ns, until_ns))
        return NOTHING

    def end(self, state: _Searches, end: RunEnd) -> Sequence[Finding]:
        return tuple(
            one.violated
            for search in state.partitions.values()
            for one in search.suspects
            if state.served_ns(one, end) > FOUND_WITHIN_NS
        )


class _Stored(Struct, frozen=True):
    """The leader that stored a batch, and the event by which its leadership began."""

    leader: str
    began: Cause | None


@dataclass(slots=True)
class _Sequences:
    """The idempotent batches in each process's log, and which process stored each first."""

    logs: ReplicaLogs = field(default_factory=ReplicaLogs)
    at: dict[tuple[int, int, str], dict[int, _Stored]] = field(default_factory=dict)
    """producer, sequence and content -> offset -> what stored it there."""
    leads: dict[str, Cause] = field(default_factory=dict)
    """process -> the newest event by which it began to lead."""


def _content(body: LogAppended) -> str:
    """A batch's checksum, whatever the epoch in which a leader stored it."""
    return body.digest.partition(".")[0]


def _second_leadership(first: _Stored | None, second: _Stored | None) -> tuple[Cause, ...]:
    """The event by which another leader than the first began to lead, if it stored it again."""
    if second is None or second.began is None or second == first:
        return ()
    return (second.began,)


@final
class ResendIsStoredOnce(Struct, frozen=True):
    """RP-12. A resend has the producer, sequence and bytes of the first request. It is stored
    again only if the first was not kept. Exercised by a resend that a later leader recognises as
    stored. If two leaders stored it, the second one's leadership explains that."""

    clause: str = "RP-12"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            LeadershipStarted,
            LogAppended,
            LogTruncated,
            HighWatermarkAdvanced,
            ProduceAnswered,
        }
    )
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Sequences:
        return _Sequences()

    def step(self, state: _Sequences, event: Event) -> tuple[_Sequences, Sequence[Finding]]:
        body = event.body
        if isinstance(body, LogAppended):
            state.logs.append(event.process, body)
            if body.as_leader and body.producer_id >= 0:
                place = (body.producer_id, body.base_sequence, _content(body))
                stored_by = _Stored(event.process, state.leads.get(event.process))
                state.at.setdefault(place, {})[body.base_offset] = stored_by
        elif isinstance(body, LeadershipStarted):
            state.leads[event.process] = event.ref
        elif isinstance(body, LogTruncated):
            state.logs.truncate(event.process, body.to_offset)
        elif isinstance(body, HighWatermarkAdvanced):
            return state, self._commits(state, event, body)
        elif isinstance(body, ProduceAnswered) and body.duplicate and body.error == "NONE":
            stored = [at for at in state.at.values() if body.base_offset in at]
            if any(at[body.base_offset].leader != event.process for at in stored):
                return state, (Exercised(event.ref, Evidence.PEER),)
        return state, NOTHING

    @staticmethod
    def _commits(state: _Sequences, event: Event, body: HighWatermarkAdvanced) -> Sequence[Finding]:
        """A batch that is committed twice in one log is stored twice, whatever is truncated
        elsewhere."""
        below = [b for b in state.logs.of(event.process) if b.log_end <= body.high_watermark]
        _, conflict = state.logs.commit(event.process, body.high_watermark)
        place = f"{body.topic}-{body.partition}"
        if conflict is not None:
            message = (
                f"after a failover {event.process} and {conflict.other} hold different writes at "
                f"offset {conflict.batch.base_offset} of {place}"
            )
            return (Violated(event.ref, Evidence.PEER, message),)
        for batch in below:
            if batch.producer_id < 0:
                continue
            at = state.at.get((batch.producer_id, batch.base_sequence, _content(batch)), {})
            twice = [
                offset
                for offset in at
                if offset < batch.base_offset and offset in state.logs.committed
                and state.logs.committed[offset][0].partition(".")[0] == _content(batch)
            ]  # fmt: skip
            if twice:
                message = (
                    f"{event.process} holds one write of producer {batch.producer_id}, sequence "
                    f"{batch.base_sequence}, at offset {twice[0]} of {place} and again at "
                    f"{batch.base_offset}"
                )
                because = _second_leadership(at.get(twice[0]), at.get(batch.base_offset))
                return (Violated(event.ref, Evidence.PEER, message, because),)
        return NOTHING

    def end(self, state: _Sequences, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(slots=True)
class _Queue:
    """The writes of clients that each leader has stored and not answered."""

    waiting: dict[str, dict[Cause, Event]] = field(default_factory=dict)
    stopped: dict[str, tuple[Cause, int]] = field(default_factory=dict)
    """process -> when it stopped leading."""
    last_ns: dict[str, int] = field(default_factory=dict)


@final
class SteppingDownFailsWrites(Struct, frozen=True):
    """RP-31. Exercised by a write that was still waiting when its leader stepped down, and was
    answered with an error. Broken by a write that its leader leaves unanswered although it is
    alive."""

    clause: str = "RP-31"
    kinds: frozenset[type[Struct]] = frozenset(
        {LogAppended, ProduceAnswered, LeadershipStarted, LeadershipEnded, FollowingStarted}
    )
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Queue:
        return _Queue()

    def step(self, state: _Queue, event: Event) -> tuple[_Queue, Sequence[Finding]]:
        body = event.body
        process = event.process
        state.last_ns[process] = event.at_ns
        if isinstance(body, LogAppended):
            if body.as_leader and event.cause is not None and event.cause.request:
                state.waiting.setdefault(process, {})[event.cause] = event
        elif isinstance(body, ProduceAnswered):
            waited = None
            if event.cause is not None:
                waited = state.waiting.get(process, {}).pop(event.cause, None)
            stopped = state.stopped.get(process)
            if waited is not None and stopped is not None:
                return state, self._answered(event, body, stopped[0])
        elif isinstance(body, LeadershipStarted):
            state.stopped.pop(process, None)
        elif isinstance(body, LeadershipEnded):
            state.stopped[process] = (event.ref, event.at_ns)
        return state, NOTHING

    @staticmethod
    def _answered(event: Event, body: ProduceAnswered, ref: Cause) -> Sequence[Finding]:
        if body.error != "NONE":
            return (Exercised(event.ref, Evidence.SELF),)
        if body.acks != -1 or body.high_watermark >= body.log_end:
            return NOTHING
        message = (
            f"{event.process} acknowledged {body.topic}-{body.partition} up to offset "
            f"{body.log_end} after it had stopped leading, with a high watermark of "
            f"{body.high_watermark}"
        )
        return (Violated(event.ref, Evidence.SELF, message, (ref,)),)

    def end(self, state: _Queue, end: RunEnd) -> Sequence[Finding]:
        found: list[Finding] = []
        for process, (ref, at_ns) in state.stopped.items():
            waiting = state.waiting.get(process)
            if not waiting:
                continue
            message = (
                f"{process} stopped leading with {len(waiting)} writes and never answered them"
            )
            if state.last_ns[process] - at_ns > ANSWERED_WITHIN_NS:
                found.append(Violated(ref, Evidence.SELF, message))
            else:
                found.append(Undecided(f"{message}; its events end soon after", ref))
        return found
