"""Registrations of brokers in ZooKeeper, and their incarnation ids (KIP-343)."""

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
    Facts,
    Findings,
    NodeStarted,
    Rule,
    RunEnd,
    Violated,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    ControllerBegan,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
    MetadataHeartbeatSent,
    broker_of,
)
from fencepost_suites.heartbeats.accounts import Superseded
from fencepost_suites.heartbeats.terms import TERM_KINDS, Ending, Term, Terms

INVALID_INCARNATION = "INVALID_INCARNATION_ID"
LIVE_STATES = (2, 3)
"""The states in the answer to a broker that is in the cluster."""
UNDER_WAY_NS = 2_000 * MS
"""How long a heartbeat may be under way if its sender has not recorded it."""


@dataclass(slots=True)
class _Registrations:
    """The registrations of brokers' processes."""

    newest: dict[int, int] = field(default_factory=dict)
    """broker -> the highest czxid of its registrations."""
    at_start: dict[str, dict[int, int]] = field(default_factory=dict)
    """process -> `newest` at its start."""
    made: dict[str, dict[int, Cause]] = field(default_factory=dict)
    """process -> the czxids of its registrations, and their events."""
    maker: dict[tuple[int, int], str] = field(default_factory=dict)
    """(broker, czxid) -> the process that registered with it."""
    newest_of: dict[str, tuple[int, int]] = field(default_factory=dict)
    """process -> the czxid of its newest registration, and when it made it."""
    early: list[tuple[str, int, Violated]] = field(default_factory=list)
    """Heartbeats of a process with a greater czxid than any that it has told of: it may tell of
    that registration later. The czxid, and what is violated if it does not."""
    sent: dict[tuple[str, int], int] = field(default_factory=dict)
    """(process, its number of a heartbeat) -> the czxid of its newest registration then."""


@final
class IncarnationIsRegistration(Rule[_Registrations]):
    """HB-01. The controller's event is the evidence of the incarnation id in a heartbeat, and so is
    the broker's own, as it sends it. Two
    processes of a broker that run at once may record their registrations in either order. So a
    czxid must be higher only than all that were recorded before its process started. After a
    process has registered anew, only heartbeats that it sent before may have its former czxid."""

    clause = "HB-01"
    state = _Registrations

    @on(NodeStarted, BrokerRegistered, MetadataHeartbeatSent, MetadataHeartbeatAnswered)
    def step(self, state: _Registrations, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted():
                state.at_start[event.process] = dict(state.newest)
            case BrokerRegistered():
                return self._registered(state, event, body)
            case MetadataHeartbeatSent():
                return self._sent(state, event, body)
            case MetadataHeartbeatAnswered():
                return self._answered(state, event, body)
        return NOTHING

    @staticmethod
    def _sent(state: _Registrations, event: Event, body: MetadataHeartbeatSent) -> Findings:
        newest, _ = state.newest_of.get(event.process, (-1, 0))
        state.sent[event.process, body.correlation] = newest
        if newest in (-1, body.incarnation_id):
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} sent a heartbeat with incarnation id {epoch}, though its registration has "
            "czxid {other_epoch}",
            (state.made[event.process][newest],),
            process=process_scope(event.process),
            epoch=body.incarnation_id,
            other_epoch=newest,
            broker=broker_of(body.broker_id),
        )
        return (broken,)

    @staticmethod
    def _registered(state: _Registrations, event: Event, body: BrokerRegistered) -> Findings:
        broker, czxid = body.broker_id, body.broker_epoch
        own = state.made.setdefault(event.process, {})
        before = state.at_start.get(event.process, {}).get(broker, -1)
        maker = state.maker.setdefault((broker, czxid), event.process)
        earlier = max(before, *own, -1)
        own[czxid] = event.ref
        state.early = [one for one in state.early if one[:2] != (event.process, czxid)]
        state.newest_of[event.process] = (czxid, event.at_ns)
        state.newest[broker] = max(state.newest.get(broker, -1), czxid)
        taken = maker != event.process
        if not taken and czxid > earlier:
            return NOTHING
        known: Facts = {"other": process_scope(maker)} if taken else {"other_epoch": earlier}
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} registered as broker {broker} with czxid {epoch}, which is the czxid of "
            "{other}"
            if taken
            else "{process} registered as broker {broker} with czxid {epoch}, though an earlier "
            "registration has {other_epoch}",
            process=process_scope(event.process),
            broker=broker_of(broker),
            epoch=czxid,
            **known,
        )
        return (broken,)

    @staticmethod
    def _answered(state: _Registrations, event: Event, body: MetadataHeartbeatAnswered) -> Findings:
        own = state.made.get(body.client)
        if own is None:
            return NOTHING
        newest, since_ns = state.newest_of[body.client]
        if body.incarnation_id == newest:
            return (Exercised(event.ref, Evidence.PEER),)
        request = event.cause
        # The registration that the process had when it sent this very heartbeat, if it has recorded
        # that.
        then = state.sent.get((request.process, request.seq)) if request is not None else None
        under_way = event.at_ns <= since_ns + UNDER_WAY_NS if then is None else then != newest
        if body.incarnation_id in own and under_way:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} got a heartbeat of {other} with incarnation id {epoch}, though its "
            "registration has czxid {other_epoch}",
            (own[newest],),
            process=process_scope(event.process),
            other=process_scope(body.client),
            epoch=body.incarnation_id,
            other_epoch=newest,
            broker=broker_of(body.broker_id),
        )
        if body.incarnation_id > newest:
            state.early.append((body.client, body.incarnation_id, broken))
            return NOTHING
        return (broken,)

    def end(self, state: _Registrations, end: RunEnd) -> Findings:
        return [broken for _, _, broken in state.early]


@dataclass(slots=True)
class _Known:
    """The incarnations of brokers that each controller's process has declared in its term, and
    those whose heartbeats it has accepted."""

    declared: dict[tuple[str, int], tuple[int, Cause]] = field(default_factory=dict)
    accepted: dict[tuple[str, int], tuple[int, Cause]] = field(default_factory=dict)
    """The highest that it has accepted a heartbeat of: another one than it declared or names."""

    def declare(self, event: Event, body: BrokerDeclared) -> None:
        """Applies a declaration."""
        self.declared[event.process, body.broker_id] = (body.incarnation_id, event.ref)

    def begin(self, process: str) -> None:
        """Drops what the process declared and accepted in its earlier terms."""
        for known in (self.declared, self.accepted):
            for key in [key for key in known if key[0] == process]:
                del known[key]


@dataclass(slots=True)
class _Answers:
    """What controllers have declared, what brokers have registered, and their heartbeats."""

    known: _Known = field(default_factory=_Known)
    superseded: Superseded = field(default_factory=Superseded)
    sent_ns: dict[str, int] = field(default_factory=dict)
    """process -> when it sent its newest heartbeat."""
    suspects: list[Deadline] = field(default_factory=list)


@final
class OldIncarnationRefused(Rule[_Answers]):
    """HB-12. The controller knows the incarnation that it has declared, and the one that it names
    in its answer, if that is higher. The brokers' evidence is the answer that a process receives,
    once another process has been registered under its id for the session timeout and six
    seconds."""

    clause = "HB-12"
    state = _Answers

    @on(
        *TERM_KINDS,
        BrokerRegistered,
        MetadataHeartbeatSent,
        MetadataHeartbeatAnswered,
        MetadataHeartbeatReceived,
    )
    def step(self, state: _Answers, event: Event, body: Struct) -> Findings:
        state.superseded.take(event)
        match body:
            case ControllerBegan():
                state.known.begin(event.process)
            case BrokerDeclared():
                state.known.declare(event, body)
            case MetadataHeartbeatSent():
                state.sent_ns[event.process] = event.at_ns
            case MetadataHeartbeatReceived(error="NONE") if body.state in LIVE_STATES:
                sent_ns = state.sent_ns.get(event.process, event.at_ns)
                late = state.superseded.late(event.process, body.broker_id, sent_ns, event)
                if late is not None:
                    state.suspects.append(late)
            case MetadataHeartbeatReceived(error="INVALID_INCARNATION_ID"):
                return (Exercised(event.ref, Evidence.PEER),)
            case MetadataHeartbeatAnswered(active=True):
                return self._answered(state.known, event, body)
        return NOTHING

    @staticmethod
    def _answered(state: _Known, event: Event, body: MetadataHeartbeatAnswered) -> Findings:
        of = event.process, body.broker_id
        declared = state.declared.get(of, (-1, None))
        if body.error == INVALID_INCARNATION and body.incarnation_id < declared[0]:
            return (Exercised(event.ref, Evidence.SELF),)
        if body.error != "NONE":
            return NOTHING
        words = declared, state.accepted.get(of, (-1, None)), (body.known, None)
        known, at = max(words, key=lambda one: one[0])
        if body.incarnation_id >= known:
            state.accepted[of] = body.incarnation_id, event.ref
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} accepted a heartbeat of {other} with incarnation id {epoch}, though it has "
            "{other_epoch} for broker {broker}",
            () if at is None else (at,),
            process=process_scope(event.process),
            other=process_scope(body.client),
            epoch=body.incarnation_id,
            other_epoch=known,
            broker=broker_of(body.broker_id),
        )
        return (broken,)

    def end(self, state: _Answers, end: RunEnd) -> Findings:
        return judged(state.suspects, end)


class _Adopted(Struct, frozen=True):
    """An incarnation id that a controller's process took from a heartbeat."""

    incarnation: int
    at_ns: int
    ref: Cause


@dataclass(slots=True)
class _Adoptions:
    """The adopted incarnations that are not handled as a bounce yet."""

    terms: Terms = field(default_factory=Terms)
    known: _Known = field(default_factory=_Known)
    open: dict[tuple[str, int], _Adopted] = field(default_factory=dict)
    suspects: list[Deadline] = field(default_factory=list)


@final
class NewIncarnationIsBounce(Rule[_Adoptions]):
    """HB-13. After it has adopted a new incarnation id, the controller must declare the bounce
    within its heartbeat timeout and 500 ms: that the former process is absent, or a state of the
    new one. A declaration of a higher id for a broker that was not declared absent adopts it, too.
    The end of its term does not excuse what was due before; but a controller that loses its
    session, or dies, may have been without ZooKeeper for the session timeout, and could not read
    the registrations."""

    clause = "HB-13"
    state = _Adoptions

    @on(*TERM_KINDS, MetadataHeartbeatAnswered)
    def step(self, state: _Adoptions, event: Event, body: Struct) -> Findings:
        ending = state.terms.ending(event)
        if ending is not None:
            self._leave(state, event, ending)
        match body:
            case ControllerBegan():
                state.known.begin(event.process)
            case BrokerDeclared():
                found = self._declared(state, event, body)
                state.terms.take(event)
                return found
            case MetadataHeartbeatAnswered(active=True):
                return self._answered(state, event, body)
        state.terms.take(event)
        return NOTHING

    def _leave(self, state: _Adoptions, event: Event, ending: Ending) -> None:
        """Judges what was due when a term ends, and drops the rest."""
        for key in [key for key in state.open if key[0] == ending.process]:
            if state.open[key].at_ns + _bound_ns(ending.term) < ending.reached_ns:
                self._overdue(state, key, ending.term, event.at_ns)
            del state.open[key]

    def _declared(self, state: _Adoptions, event: Event, body: BrokerDeclared) -> Findings:
        key = (event.process, body.broker_id)
        adopted = state.open.get(key)
        if adopted is None:
            state.known.declare(event, body)
            term = state.terms.now.get(event.process)
            known = None if term is None else term.brokers.get(body.broker_id)
            # A broker that it has not seen to be absent, with a higher id: the declaration itself
            # adopts it, and the bounce is owed. One for a heartbeat once hid it.
            former = body.incarnation_id if known is None else known.incarnation
            if body.new != "Absent" and former < body.incarnation_id:
                state.open[key] = _Adopted(body.incarnation_id, event.at_ns, event.ref)
            return NOTHING
        # A declaration for another reason handles no bounce, so the adopted id is still owed.
        if body.reason not in ("bounced", "gone", "registered"):
            return NOTHING
        # The former process becomes absent, or the new one is met. Another state of the old id is
        # no bounce, whatever reason it has.
        if body.incarnation_id < adopted.incarnation and body.new != "Absent":
            return NOTHING
        self._overdue(state, key, state.terms.now[event.process], event.at_ns)
        del state.open[key]
        state.known.declare(event, body)
        return (Exercised(event.ref, Evidence.SELF),)

    @staticmethod
    def _answered(state: _Adoptions, event: Event, body: MetadataHeartbeatAnswered) -> Findings:
        key = (event.process, body.broker_id)
        known = state.known.declared.get(key)
        if known is None or known[0] < 0 or body.incarnation_id < known[0]:
            return NOTHING
        if body.incarnation_id == known[0]:
            # The answer was sent after the bounce was handled.
            adopted = body.error == "NONE" and 0 <= body.known < body.incarnation_id
            return (Exercised(event.ref, Evidence.SELF),) if adopted else NOTHING
        if body.error == INVALID_INCARNATION:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} refused incarnation id {epoch} of {other} as old, though it knows only "
                "{other_epoch}",
                (known[1],),
                process=process_scope(event.process),
                epoch=body.incarnation_id,
                other=process_scope(body.client),
                other_epoch=known[0],
                broker=broker_of(body.broker_id),
            )
            return (broken,)
        if body.error == "NONE" and event.process in state.terms.now:
            state.open.setdefault(key, _Adopted(body.incarnation_id, event.at_ns, event.ref))
        return NOTHING

    @staticmethod
    def _overdue(state: _Adoptions, key: tuple[str, int], term: Term, at_ns: int) -> None:
        adopted = state.open[key]
        due_ns = adopted.at_ns + _bound_ns(term)
        if at_ns <= due_ns:
            return
        state.suspects.append(
            Deadline(
                violated=violated(
                    adopted.ref,
                    Evidence.SELF,
                    "{process} adopted incarnation id {epoch} of broker {broker} and did not treat "
                    "it as a bounce",
                    process=process_scope(key[0]),
                    epoch=adopted.incarnation,
                    broker=broker_of(key[1]),
                ),
                actors=(key[0],),
                from_ns=adopted.at_ns,
                to_ns=at_ns,
                bound_ns=term.timeout_ns,
                due_ns=due_ns,
            )
        )

    def end(self, state: _Adoptions, end: RunEnd) -> Findings:
        for key in state.open:
            self._overdue(state, key, state.terms.now[key[0]], end.ended_at_ns)
        return judged(state.suspects, end)


def _bound_ns(term: Term) -> int:
    return term.timeout_ns + 500 * MS
