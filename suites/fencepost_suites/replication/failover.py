"""A leader that fails or steps down: a write in flight finds the next one (RP-11 to RP-13 are the
replication design's three cases of when it fails)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Excuses,
    Exercised,
    FaultHealed,
    FaultInjected,
    Findings,
    ProcessExited,
    Rule,
    RunEnd,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerStateChanged,
    LeadershipEnded,
    LeadershipStarted,
    PartitionCommitted,
    ProduceAnswered,
    ProduceCompleted,
    ProduceInvoked,
    RequestRefused,
    partition_of,
)
from fencepost_kafka.vocabulary import CLIENTS

FOUND_WITHIN_NS = 8_000_000_000
"""A client gives up on a silent connection within five seconds, and then asks other brokers."""
HANDOVER_NS = 1_000_000_000
"""A leader that steps down within this time of its successor's start was alive at the handover."""


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
        # From here on clients may have asked the next leader, whatever this process knows.
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
    faults: Excuses = field(default_factory=Excuses)

    def at(self, body: Any) -> _Search:
        """The partition that an event is about."""
        place = (body.topic, body.partition)
        one = self.partitions.get(place)
        if one is None:
            one = self.partitions[place] = _Search()
        return one

    def change(self, process: str, state: str, at_ns: int) -> None:
        """A broker's state has changed. Before it is active for the first time, it was not."""
        if state != "ACTIVE":
            self.out.setdefault(process, at_ns)
        elif process in self.out or process not in self.spans:
            self.spans.setdefault(process, []).append((self.out.pop(process, 0), at_ns))

    def _cut(self, one: _Unfound) -> Iterator[tuple[int, int]]:
        """When a fault affected the links of clients to the leader of a suspect."""
        for fault in self.faults.since(one.from_ns):
            if fault.directions and fault.between(one.leader, CLIENTS):
                yield fault.began_ns, one.to_ns if fault.ended_ns is None else fault.ended_ns

    def served_ns(self, one: _Unfound, end: RunEnd) -> int:
        """How long the leader of a suspect served, and clients could reach it."""
        spans = list(self.spans.get(one.leader, ()))
        if one.leader in self.out:
            spans.append((self.out[one.leader], one.to_ns))
        spans += self._cut(one)
        # The spans overlap: a leader stood still and then ended, or a cut lies within another. So
        # the gaps between them are summed, and a time that is excused twice counts once.
        served_ns, at_ns = 0, one.from_ns
        for began_ns, ended_ns in (*sorted(spans), (one.to_ns, one.to_ns)):
            until_ns = min(began_ns, one.to_ns)
            if until_ns > at_ns:
                served_ns += until_ns - at_ns - end.stalled_ns(at_ns, until_ns, one.leader)
            at_ns = max(at_ns, ended_ns)
        return served_ns


@final
class ResendFindsLeader(Rule[_Searches]):
    """RP-11. Exercised by a write invoked under one leader and stored by the next. Broken by a
    write that fails, or is still open when leadership moves on, although a leader served for eight
    seconds without a request from its client. A process that stands still, is not active or has
    ended serves nothing, and one whose link to the clients a fault affects need not be reached."""

    clause = "RP-11"
    state = _Searches

    @on(BrokerStateChanged)
    def _changed(self, state: _Searches, event: Event, body: BrokerStateChanged) -> Findings:
        state.change(event.process, body.new, event.at_ns)
        return NOTHING

    @on(ProcessExited)
    def _exited(self, state: _Searches, event: Event, body: ProcessExited) -> Findings:
        state.change(body.ended, "ended", event.at_ns)
        return NOTHING

    @on(FaultInjected, FaultHealed)
    def _struck(
        self, state: _Searches, event: Event, body: FaultInjected | FaultHealed
    ) -> Findings:
        state.faults.take(event)
        return NOTHING

    @on(ProduceInvoked)
    def _invoked(self, state: _Searches, event: Event, body: ProduceInvoked) -> Findings:
        state.at(body).open[body.operation] = (event.at_ns, event.process)
        return NOTHING

    @on(ProduceAnswered, RequestRefused)
    def _reached(
        self, state: _Searches, event: Event, body: ProduceAnswered | RequestRefused
    ) -> Findings:
        led = state.at(body).of(event.process)
        # A leader that refuses a write since it does not lead has not been found. One that is
        # fenced answers likewise, for another reason.
        unaware = isinstance(body, RequestRefused) and body.reason == "not_leader"
        if led is not None and not unaware:
            led.reached[body.client] = event.at_ns
        return NOTHING

    @on(PartitionCommitted)
    def _committed(self, state: _Searches, event: Event, body: PartitionCommitted) -> Findings:
        state.at(body).depose(body, event.at_ns)
        return NOTHING

    @on(LeadershipStarted)
    def _led(self, state: _Searches, event: Event, body: LeadershipStarted) -> Findings:
        one = state.at(body)
        if event.process == one.leader:
            if one.until_ns is not None and body.leader_epoch != one.next_epoch:
                one.since_ns = event.at_ns  # it was deposed meanwhile, and is elected anew
            one.epoch, one.until_ns = body.leader_epoch, None
            return NOTHING
        state.partitions[body.topic, body.partition] = _Search(
            leader=event.process,
            since_ns=event.at_ns,
            epoch=body.leader_epoch,
            log_end=body.log_end,
            ref=event.ref,
            reached={},
            open=one.open,
            # The former leader may not know yet that it is one. Its own word that it stepped down
            # comes later.
            former=replace(one, former=None),
            suspects=one.suspects,
        )
        return NOTHING

    @on(LeadershipEnded)
    def _left(self, state: _Searches, event: Event, body: LeadershipEnded) -> Findings:
        one = state.at(body)
        if event.process == one.leader:
            self._unheard(one, event, body)
            new = _Search(open=one.open, suspects=one.suspects)
            state.partitions[body.topic, body.partition] = new
            return NOTHING
        left = one.of(event.process)
        if left is not None:
            one.former = None
            # A former leader that steps down later may have been dead or cut off for long, so that
            # no client found it proves nothing.
            if event.at_ns - one.since_ns <= HANDOVER_NS:
                self._unheard(left, event, body)
        return NOTHING

    @staticmethod
    def _unheard(state: _Search, event: Event, body: LeadershipEnded) -> None:
        """Suspects the write that has been open longest while a leader steps down which its client
        never reached."""
        if state.ref is None:
            return
        for operation, (invoked_ns, client) in state.open.items():
            # Whatever the leader answered, the client had found it.
            if client in state.reached:
                continue
            from_ns = max(invoked_ns, state.since_ns)
            until_ns = state.led_until(event.at_ns)
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{operation} of {client} was open for {open_ns} while {leader} led, and never "
                "reached it",
                (state.ref,),
                operation=operation,
                client=process_scope(client),
                open_ns=until_ns - from_ns,
                leader=process_scope(state.leader),
                partition=partition_of(body),
            )
            state.suspects.append(_Unfound(broken, state.leader, from_ns, until_ns))
            return

    @on(ProduceCompleted)
    def _completed(self, state: _Searches, event: Event, body: ProduceCompleted) -> Findings:
        one = state.at(body)
        invoked = one.open.pop(body.operation, None)
        if invoked is None or one.ref is None:
            return NOTHING
        return self._found(one, event, body, invoked[0])

    @staticmethod
    def _found(state: _Search, event: Event, body: ProduceCompleted, invoked_ns: int) -> Findings:
        if body.outcome == "ok":
            # Invoked before this leader began, and stored in what it has added.
            later = invoked_ns < state.since_ns and body.offset >= state.log_end
            return (Exercised(event.ref, Evidence.CLIENT),) if later else NOTHING
        if event.process in state.reached:
            return NOTHING
        from_ns = max(invoked_ns, state.since_ns)
        until_ns = state.led_until(event.at_ns)
        assert state.ref is not None
        broken = violated(
            event.ref,
            Evidence.CLIENT,
            "{operation} of {client} ended as {outcome} ({error}); {leader} had led {partition} "
            "for {since_ns} and was never reached",
            (state.ref,),
            operation=body.operation,
            client=process_scope(event.process),
            outcome=body.outcome,
            error=body.error,
            leader=process_scope(state.leader),
            partition=partition_of(body),
            since_ns=event.at_ns - state.since_ns,
        )
        state.suspects.append(_Unfound(broken, state.leader, from_ns, until_ns))
        return NOTHING

    def end(self, state: _Searches, end: RunEnd) -> Findings:
        return tuple(
            one.violated
            for search in state.partitions.values()
            for one in search.suspects
            if state.served_ns(one, end) > FOUND_WITHIN_NS
        )
