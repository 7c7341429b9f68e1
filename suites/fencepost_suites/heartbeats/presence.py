"""Which process is a broker over ZooKeeper: the one whose registration in ZooKeeper is newest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    FAULT_KINDS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excused,
    Excuses,
    Exercised,
    Finding,
    Findings,
    ProcessSpawned,
    Reason,
    Rule,
    RunEnd,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.zookeeper.events import SessionExpired, session_name
from fencepost_kafka import (
    BrokerRegistered,
    FollowerFetched,
    MetadataHeartbeatSent,
    broker_of,
    partition_of,
)
from fencepost_suites.heartbeats.controllers import KNOWN_WITHIN_NS
from fencepost_suites.heartbeats.terms import LIVE, TERM_KINDS, Term, Terms
from fencepost_suites.heartbeats.without_servers import ROLE

Held = tuple[str, int, int]
"""A controller's process, a broker and a broker epoch: that controller has that broker live."""


class _Gone(Struct, frozen=True):
    """A registration without a znode: ZooKeeper has ended its session, by its own event."""

    at_ns: int
    ref: Cause


@dataclass(slots=True)
class _Znodes:
    terms: Terms = field(default_factory=Terms)
    made: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """session -> the broker ids and broker epochs that were registered in it."""
    expired: dict[str, _Gone] = field(default_factory=dict)
    """session -> its end."""
    gone: dict[tuple[int, int], _Gone] = field(default_factory=dict)
    """(broker, broker epoch) -> the end of its session."""
    held: dict[Held, int] = field(default_factory=dict)
    """What a controller holds without a znode -> since when."""
    registrations: dict[str, list[tuple[int, Cause]]] = field(default_factory=dict)
    """process -> the broker epochs of its registrations, in their order."""
    suspects: list[Deadline] = field(default_factory=list)
    faults: Excuses = field(default_factory=Excuses)
    servers: set[str] = field(default_factory=set)
    """The slots of ZooKeeper's servers."""

    def cut_off(self, process: str, since_ns: int, at_ns: int) -> Reason | None:
        """Why a controller was not told of the end of a session for that long: what fell due while
        a fault parted it from ZooKeeper is due a second after the heal."""
        for fault in self.faults.since(since_ns):
            reason = fault.reason(process, self.servers.__contains__)
            if reason and (fault.ended_ns is None or at_ns <= fault.ended_ns + KNOWN_WITHIN_NS):
                return reason
        return None

    def registered(self, event: Event, body: BrokerRegistered) -> None:
        """Applies a registration. Its process may record it later than ZooKeeper its end."""
        self.registrations.setdefault(event.process, []).append((body.broker_epoch, event.ref))
        session, place = session_name(body.session), (body.broker_id, body.broker_epoch)
        self.made.setdefault(session, set()).add(place)
        if session in self.expired:
            self.gone.setdefault(place, _Gone(event.at_ns, self.expired[session].ref))

    def end_session(self, event: Event, body: SessionExpired) -> None:
        """Applies the end of a session."""
        self.expired[body.session] = _Gone(event.at_ns, event.ref)
        for place in self.made.get(body.session, ()):
            self.gone.setdefault(place, self.expired[body.session])

    def without_znode(self) -> set[Held]:
        """What the controllers hold live without a znode."""
        return {
            (process, broker, epoch)
            for process, term in self.terms.now.items()
            for broker, epoch in _live(term).items()
            if (broker, epoch) in self.gone
        }


@final
class OnlyWithZnode(Rule[_Znodes]):
    """HB-28. The evidence is ZooKeeper's event that it has ended a broker's session. A controller
    must not have that registration live for longer than a second from then on, or from the time at
    which it declared it: whether it was elected later, or has declared it absent in between.
    Exercised if it gives up a live broker. A controller that loses its own session, or dies, may
    have been without ZooKeeper for the session timeout; one that a fault parts from ZooKeeper has a
    second from the heal on. After a new registration a broker's heartbeats must have its czxid, by
    the broker's own event."""

    clause = "HB-28"
    state = _Znodes

    @on(
        *TERM_KINDS,
        *FAULT_KINDS,
        ProcessSpawned,
        BrokerRegistered,
        SessionExpired,
        MetadataHeartbeatSent,
    )
    def step(self, state: _Znodes, event: Event, body: Struct) -> Findings:
        state.faults.take(event)
        if isinstance(body, ProcessSpawned) and body.role == ROLE:
            state.servers.add(body.slot)
        found: list[Finding] = []
        ending = state.terms.ending(event)
        if ending is not None:
            for held in [held for held in state.held if held[0] == ending.process]:
                if state.held[held] + KNOWN_WITHIN_NS < ending.reached_ns:
                    found += self._overdue(state, held, event.at_ns)
                del state.held[held]
        state.terms.take(event)
        match body:
            case BrokerRegistered():
                state.registered(event, body)
            case SessionExpired():
                state.end_session(event, body)
            case MetadataHeartbeatSent():
                return (*found, *self._sent(state, event, body))
        # Found anew at each event, since both sides change: a controller declares, and a session
        # ends.
        now = state.without_znode()
        for held in [held for held in state.held if held not in now]:
            excused = self._overdue(state, held, event.at_ns)
            del state.held[held]
            found += excused or (Exercised(event.ref, Evidence.PEER),)
        for held in now:
            state.held.setdefault(held, event.at_ns)
        return found

    @staticmethod
    def _sent(state: _Znodes, event: Event, body: MetadataHeartbeatSent) -> Findings:
        """Judges the incarnation id of a process that has registered more than once."""
        *former, newest = state.registrations.get(event.process, [(-1, event.ref)])
        if body.incarnation_id not in {epoch for epoch, _ in former if epoch != newest[0]}:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} sent a heartbeat with its former incarnation id {epoch}, after it had "
            "registered with {other_epoch}",
            (newest[1],),
            process=process_scope(event.process),
            epoch=body.incarnation_id,
            other_epoch=newest[0],
            broker=broker_of(body.broker_id),
        )
        return (broken,)

    @staticmethod
    def _overdue(state: _Znodes, held: Held, at_ns: int) -> Findings:
        (process, broker, epoch), since_ns = held, state.held[held]
        if at_ns <= since_ns + KNOWN_WITHIN_NS:
            return NOTHING
        gone = state.gone[broker, epoch]
        reason = state.cut_off(process, since_ns, at_ns)
        if reason is not None:
            untold = violated(
                gone.ref,
                Evidence.PEER,
                "{process} was not told of the session's end",
                process=process_scope(process),
                broker=broker_of(broker),
            )
            return (Excused.of(untold, reason, ": "),)
        state.suspects.append(
            Deadline(
                violated=violated(
                    gone.ref,
                    Evidence.PEER,
                    "{process} kept broker {broker} in the cluster for {since_ns} after ZooKeeper "
                    "had ended its session",
                    process=process_scope(process),
                    broker=broker_of(broker),
                    since_ns=at_ns - since_ns,
                    epoch=epoch,
                ),
                actors=(process,),
                from_ns=since_ns,
                to_ns=at_ns,
                bound_ns=KNOWN_WITHIN_NS,
                due_ns=since_ns,
            )
        )
        return NOTHING

    def end(self, state: _Znodes, end: RunEnd) -> Findings:
        found = [one for held in state.held for one in self._overdue(state, held, end.ended_at_ns)]
        return (*found, *judged(state.suspects, end))


def _live(term: Term) -> dict[int, int]:
    """The live brokers of a controller's term, with their broker epochs."""
    return {b: one.incarnation for b, one in term.brokers.items() if one.state in LIVE}


@dataclass(slots=True)
class _Newest:
    registered: dict[int, tuple[int, int, str, Cause]] = field(default_factory=dict)
    """broker -> its newest registration: the epoch, the time, the process, and the event."""
    suspects: list[Deadline] = field(default_factory=list)
    former: set[int] = field(default_factory=set)
    """The brokers whose id a second process has taken, until a fetch of that process counts."""


@final
class NewestCounts(Rule[_Newest]):
    """HB-24. Once another process has been registered under a broker's id for a second, no leader
    may count a fetch of the former process. The evidence is the newer process's registration.
    Exercised by the first counted fetch of the newer process."""

    clause = "HB-24"
    state = _Newest

    @on(BrokerRegistered, FollowerFetched)
    def step(self, state: _Newest, event: Event, body: Struct) -> Findings:
        if isinstance(body, BrokerRegistered):
            known = state.registered.get(body.broker_id)
            # By the czxid, and not by the time of the event: two processes record theirs in either
            # order.
            if known is None or body.broker_epoch > known[0]:
                if known is not None and known[2] != event.process:
                    state.former.add(body.broker_id)
                newest = (body.broker_epoch, event.at_ns, event.process, event.ref)
                state.registered[body.broker_id] = newest
        elif isinstance(body, FollowerFetched):
            return self._fetched(state, event, body)
        return NOTHING

    @staticmethod
    def _fetched(state: _Newest, event: Event, body: FollowerFetched) -> Findings:
        known = state.registered.get(body.follower)
        if known is None:
            return NOTHING
        epoch, since_ns, process, ref = known
        if body.broker_epoch == epoch:
            taken = body.follower in state.former
            state.former.discard(body.follower)
            return (Exercised(event.ref, Evidence.PEER),) if taken else NOTHING
        # A leader has to read the change in ZooKeeper first.
        if event.at_ns > since_ns + KNOWN_WITHIN_NS:
            state.suspects.append(
                Deadline(
                    violated=violated(
                        event.ref,
                        Evidence.PEER,
                        "{process} counted a fetch of {former} as broker {broker}, {after_ns} "
                        "after {other} had registered under that id",
                        (ref,),
                        process=process_scope(event.process),
                        former=process_scope(body.client),
                        broker=broker_of(body.follower),
                        after_ns=event.at_ns - since_ns,
                        other=process_scope(process),
                        partition=partition_of(body),
                    ),
                    actors=(event.process,),
                    from_ns=since_ns,
                    to_ns=event.at_ns,
                    bound_ns=KNOWN_WITHIN_NS,
                    due_ns=since_ns,
                    omission=False,
                )
            )
        return NOTHING

    def end(self, state: _Newest, end: RunEnd) -> Findings:
        return judged(state.suspects, end)
