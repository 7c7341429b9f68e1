"""Leases: how long one is, from the broker's start, and when a controller ends it (QC-13)."""

from __future__ import annotations

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
    Findings,
    Reason,
    Rule,
    RunEnd,
    Undecided,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    HeartbeatAnswered,
    HeartbeatSent,
    LeaseExpired,
    LeaseGranted,
    broker_of,
)
from fencepost_suites.brokers.exchanges import Exchanges
from fencepost_suites.common.keys import by_broker


@final
class _Heard(Struct, frozen=True):
    """A heartbeat that a controller accepted: from which time on its lease runs."""

    since_ns: int
    proof: tuple[Cause, ...]
    """The request, if the broker told of it, and the answer."""
    certain: bool
    """Whether the controller cannot have had it before that time. Else that is when it was answered
    only: it may have waited."""
    by: str
    """The process of the controller."""


@dataclass(slots=True)
class _Lengths:
    """The heartbeats of one broker id, and what is known of the lengths of its leases."""

    exchanges: Exchanges = field(default_factory=Exchanges)
    period: tuple[int, int] = (-1, 0)
    """The newest controller epoch that answered, and its period in milliseconds."""
    heard: dict[tuple[str, int], tuple[int, _Heard]] = field(default_factory=dict)
    """process of a controller, and its epoch -> the broker epoch of the heartbeat that came last,
    and that heartbeat."""
    record: BrokerCommitted | None = None
    """The newest record of the broker."""
    ends: bool = False
    """Whether a controller found the lease ended or refused to renew it, or the broker asked to
    stop, since a record unfenced it: then another record may fence it. No later answer undoes that,
    since a deposed controller may still give answers."""
    by_one: dict[int, tuple[str, Deadline]] = field(default_factory=dict)
    """offset -> a record that fenced it too early, by the word of this process alone. When a record
    was there, one node may say wrongly, unless it is the accused itself."""
    by_record: list[Deadline] = field(default_factory=list)
    """Records that fenced it too early, unless a heartbeat of before is refused after."""
    suspects: list[Deadline] = field(default_factory=list)


@final
class LeaseFromBrokersStart(Rule[_Lengths]):
    """QC-13. The broker's evidence is the lease in the answer that it received, from the start that
    it had asked for. The controller may say when it heard the broker last. But it cannot have heard
    it before the broker sent the last heartbeat that it accepted. A record may fence it with
    no word of an expiry, so that counts, too. A tenth of the period is allowed for clock
    differences."""

    clause = "QC-13"
    keys = staticmethod(by_broker)
    state = _Lengths

    @on(HeartbeatSent, HeartbeatAnswered, LeaseGranted, LeaseExpired, BrokerCommitted)
    def step(self, state: _Lengths, event: Event, body: Struct) -> Findings:
        match body:
            case HeartbeatSent():
                state.exchanges.sent(event, body)
                state.ends = state.ends or body.target_state == "SHUTDOWN"
            case HeartbeatAnswered(error="NONE"):
                return self._answered(state, event, body)
            case HeartbeatAnswered(active=True) if state.record is not None:
                if body.incarnation == state.record.incarnation:
                    self._refused(state, body)
            case LeaseGranted():
                return self._granted(state, event, body)
            case LeaseExpired():
                state.ends = True
                return self._expired(state, event, body)
            case BrokerCommitted():
                return self._committed(state, event, body)
        return NOTHING

    @staticmethod
    def _refused(state: _Lengths, body: HeartbeatAnswered) -> None:
        """A controller refuses to renew the lease. One that fences a broker by that, as it is far
        behind, answers once the record is stored."""
        state.ends = True
        asked = state.exchanges.of.get(body.client, {}).get(body.lease_start_ms)
        sent_ns = 0 if asked is None or asked.request is None else asked.request.at_ns
        came_ns = max(sent_ns, body.received_at_ns)
        state.by_record = [one for one in state.by_record if came_ns > one.to_ns]
        state.by_one = {at: one for at, one in state.by_one.items() if came_ns > one[1].to_ns}

    @staticmethod
    def _committed(state: _Lengths, event: Event, body: BrokerCommitted) -> Findings:
        """A record may fence the broker though no controller says that its lease has ended."""
        was, ends = state.record, state.ends
        if was is not None and body.offset <= was.offset:
            LeaseFromBrokersStart._told_again(state, event, body.offset)
            return NOTHING
        state.record, state.ends = body, ends and body.fenced
        # A record of another process, or of a registration, ends no lease.
        if was is None or was.fenced or not body.fenced or ends:
            return NOTHING
        if (was.incarnation, was.broker_epoch) != (body.incarnation, body.broker_epoch):
            return NOTHING
        last = max(
            (one for epoch, one in state.heard.values() if epoch == body.broker_epoch),
            key=lambda one: one.since_ns,
            default=None,
        )
        period_ns = state.period[1] * MS
        if last is None or not last.certain or event.at_ns - last.since_ns >= period_ns * 9 // 10:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "a record fenced broker {broker} {after_ns} after {process} had accepted a heartbeat "
            "of it, though the lease is {bound_ns} and it had not asked to stop",
            last.proof,
            process=process_scope(last.by),
            broker=broker_of(body.broker_id),
            after_ns=event.at_ns - last.since_ns,
            bound_ns=period_ns,
        )
        late = Deadline(broken, (last.by,), last.since_ns, event.at_ns, period_ns, omission=False)
        if event.process == last.by:
            state.by_record.append(late)
        else:
            state.by_one[body.offset] = event.process, late
        return NOTHING

    @staticmethod
    def _told_again(state: _Lengths, event: Event, offset: int) -> None:
        """Another node tells a record that fenced the broker, before it could, too."""
        process, late = state.by_one.get(offset, (event.process, None))
        if late is None or event.process == process:
            return
        del state.by_one[offset]
        if event.at_ns - late.from_ns < late.bound_ns * 9 // 10:
            state.by_record.append(late)

    @staticmethod
    def _expired(state: _Lengths, event: Event, body: LeaseExpired) -> Findings:
        silent_ms = (body.now_ns - body.last_heard_ns) / MS
        if silent_ms < body.lease_period_ms:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} expired the lease of broker {broker} {after_ms} ms after its last "
                "heartbeat, though the lease is {bound_ms} ms",
                process=process_scope(event.process),
                broker=broker_of(body.broker_id),
                after_ms=round(silent_ms),
                bound_ms=body.lease_period_ms,
            )
            return (broken,)
        epoch, heard = state.heard.get((event.process, body.controller_epoch), (-1, None))
        period_ns = body.lease_period_ms * MS
        if heard is None or epoch != body.broker_epoch:
            return (Exercised(event.ref, Evidence.SELF),)
        after_ns = event.at_ns - heard.since_ns
        if after_ns >= period_ns * 9 // 10:
            return (Exercised(event.ref, Evidence.SELF),)
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} expired the lease of broker {broker} within {after_ns} of a heartbeat that "
            "it accepted, though the lease is {bound_ns}",
            heard.proof,
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
            after_ns=after_ns,
            bound_ns=period_ns,
        )
        if not heard.certain:
            unknown = Reason("when that came is not recorded")
            return (Undecided.of(broken, unknown, "; but "),)
        state.suspects.append(
            Deadline(
                broken, (event.process,), heard.since_ns, event.at_ns, period_ns, omission=False
            )
        )
        return NOTHING

    @staticmethod
    def _answered(state: _Lengths, event: Event, body: HeartbeatAnswered) -> Findings:
        exchange = state.exchanges.answered(event, body)
        if body.controller_epoch >= state.period[0]:
            state.period = body.controller_epoch, body.lease_period_ms
        # A broker that may end is not watched any more, and its lease goes on as it was.
        if body.next_state != "SHUTDOWN":
            request, answered = exchange.request, body.received_at_ns
            came_ns = max(answered, 0 if request is None else request.at_ns)
            proof = (event.ref,) if request is None else (request.at, event.ref)
            heard = _Heard(came_ns or event.at_ns, proof, came_ns > 0, event.process)
            state.heard[event.process, body.controller_epoch] = body.broker_epoch, heard
        length = body.lease_end_ms - body.lease_start_ms
        if length == body.lease_period_ms:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} answered {client} a lease of {length_ms} ms from the start the broker "
            "had named; the period is {bound_ms} ms",
            process=process_scope(event.process),
            client=process_scope(body.client),
            length_ms=length,
            bound_ms=body.lease_period_ms,
            broker=broker_of(body.broker_id),
        )
        return (broken,)

    @staticmethod
    def _granted(state: _Lengths, event: Event, body: LeaseGranted) -> Findings:
        exchange = state.exchanges.granted(event, body)
        length = body.lease_end_ms - body.lease_start_ms
        request, answer = exchange.request, exchange.answer
        if exchange.grant is None or exchange.grant.at != event.ref:
            return NOTHING
        because: tuple[Cause, ...] = ()
        if answer is not None:
            told = answer.body
            # The answer itself was wrong, which is found already.
            if told.lease_end_ms - told.lease_start_ms != told.lease_period_ms:
                return NOTHING
            period = told.lease_period_ms
            if length == period:
                return (Exercised(event.ref, Evidence.PEER),)
        else:
            # No answer names the start that the broker asked for: it was lost, or the controller
            # counts from another start. Any answer of this epoch has the same period.
            epoch, period = state.period
            if request is None or epoch != body.controller_epoch or length == period:
                return NOTHING
            because = (request.at,)
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} was answered a lease of {length_ms} ms; the period is {bound_ms} ms",
            because,
            process=process_scope(event.process),
            length_ms=length,
            bound_ms=period,
            broker=broker_of(body.broker_id),
        )
        return (broken,)

    def end(self, state: _Lengths, end: RunEnd) -> Findings:
        alone = Reason("only one node tells when the record was there")
        return [
            *judged([*state.suspects, *state.by_record], end),
            *(Undecided.of(one.violated, alone, "; but ") for _, one in state.by_one.values()),
        ]
