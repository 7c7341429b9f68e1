"""Which process is a broker over ZooKeeper: the one whose registration in ZooKeeper is newest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import Cause, Event, Evidence, Exercised, Finding, Key, RunEnd, Violated
from fencepost_clusters.zookeeper.events import SessionExpired, session_name
from fencepost_kafka import BrokerRegistered, ControllerEnded, FollowerFetched
from fencepost_suites.brokers.leases import MS, Late, judge_late
from fencepost_suites.common.keys import NOTHING, whole_run
from fencepost_suites.common.words import span
from fencepost_suites.heartbeats.terms import LIVE, TERM_KINDS, Term, Terms

KNOWN_WITHIN_NS = 1_000 * MS
"""How long a broker may take to react to a change in ZooKeeper that it watches."""


@dataclass(slots=True)
class _Gone:
    """A registration whose session has ended, by ZooKeeper's own event."""

    broker: int
    epoch: int
    at_ns: int
    ref: Cause


@dataclass(slots=True)
class _Znodes:
    terms: Terms = field(default_factory=Terms)
    made: dict[str, tuple[int, int]] = field(default_factory=dict)
    """session -> the broker id and broker epoch that are registered in it."""
    gone: list[_Gone] = field(default_factory=list)
    suspects: list[Late] = field(default_factory=list)


@final
@dataclass(frozen=True, slots=True)
class OnlyWithZnode:
    """HB-28. The evidence is ZooKeeper's event that it has ended a broker's session. Within a
    second, the controller must declare the broker absent, or declare a later process of the broker.
    Exercised if it does so for a live broker. A controller that loses its own session may have been
    without ZooKeeper for the session timeout."""

    clause: str = "HB-28"
    kinds: frozenset[type[Struct]] = TERM_KINDS | {BrokerRegistered, SessionExpired}
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Znodes:
        return _Znodes()

    def step(self, state: _Znodes, event: Event) -> tuple[_Znodes, Sequence[Finding]]:
        body = event.body
        for one in [one for one in state.gone if event.at_ns > one.at_ns + KNOWN_WITHIN_NS]:
            state.gone.remove(one)
            self._overdue(state, one, event.at_ns)
        if isinstance(body, ControllerEnded) and body.reason == "session":
            self._excuse(state, event)
        before = {process: _live(term) for process, term in state.terms.now.items()}
        state.terms.take(event)
        match body:
            case BrokerRegistered():
                state.made[session_name(body.session)] = (body.broker_id, body.broker_epoch)
            case SessionExpired() if body.session in state.made:
                broker, epoch = state.made.pop(body.session)
                state.gone.append(_Gone(broker, epoch, event.at_ns, event.ref))
        found: list[Finding] = []
        for one in list(state.gone):
            if not any(one.epoch in _live(term).values() for term in state.terms.now.values()):
                state.gone.remove(one)
                if any(epochs.get(one.broker) == one.epoch for epochs in before.values()):
                    found.append(Exercised(event.ref, Evidence.PEER))
        return state, found

    @staticmethod
    def _excuse(state: _Znodes, event: Event) -> None:
        """What fell due within the session's timeout before a controller lost its session, it could
        not know."""
        term = state.terms.now.get(event.process)
        if term is None:
            return
        connected_ns = event.at_ns - term.session_ns
        state.suspects = [
            one
            for one in state.suspects
            if one.process != event.process or one.from_ns + KNOWN_WITHIN_NS < connected_ns
        ]

    @staticmethod
    def _overdue(state: _Znodes, one: _Gone, at_ns: int) -> None:
        for process, term in state.terms.now.items():
            if one.epoch not in _live(term).values() or term.began_ns > one.at_ns:
                continue
            message = (
                f"{process} kept broker {one.broker} in the cluster for "
                f"{span(at_ns - one.at_ns)} after ZooKeeper had ended its session"
            )
            state.suspects.append(
                Late(
                    violated=Violated(one.ref, Evidence.PEER, message),
                    process=process,
                    from_ns=one.at_ns,
                    to_ns=at_ns,
                    period_ns=KNOWN_WITHIN_NS,
                    due_ns=one.at_ns,
                )
            )

    def end(self, state: _Znodes, end: RunEnd) -> Sequence[Finding]:
        for one in state.gone:
            if end.ended_at_ns > one.at_ns + KNOWN_WITHIN_NS:
                self._overdue(state, one, end.ended_at_ns)
        return judge_late(state.suspects, end)


def _live(term: Term) -> dict[int, int]:
    """The live brokers of a controller's term, with their broker epochs."""
    return {b: one.incarnation for b, one in term.brokers.items() if one.state in LIVE}


@dataclass(slots=True)
class _Newest:
    registered: dict[int, tuple[int, int, str, Cause]] = field(default_factory=dict)
    """broker -> its newest registration: the epoch, the time, the process, and the event."""
    suspects: list[Late] = field(default_factory=list)
    former: set[int] = field(default_factory=set)
    """The brokers whose id a second process has taken, until a fetch of that process counts."""


@final
@dataclass(frozen=True, slots=True)
class NewestCounts:
    """HB-24. Once another process has been registered under a broker's id for a second, no leader
    may count a fetch of the former process. The evidence is the newer process's registration.
    Exercised by the first counted fetch of the newer process."""

    clause: str = "HB-24"
    kinds: frozenset[type[Struct]] = frozenset({BrokerRegistered, FollowerFetched})
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Newest:
        return _Newest()

    def step(self, state: _Newest, event: Event) -> tuple[_Newest, Sequence[Finding]]:
        body = event.body
        if isinstance(body, BrokerRegistered):
            known = state.registered.get(body.broker_id)
            if known is None or body.broker_epoch > known[0]:
                if known is not None and known[2] != event.process:
                    state.former.add(body.broker_id)
                newest = (body.broker_epoch, event.at_ns, event.process, event.ref)
                state.registered[body.broker_id] = newest
        elif isinstance(body, FollowerFetched):
            return state, self._fetched(state, event, body)
        return state, NOTHING

    @staticmethod
    def _fetched(state: _Newest, event: Event, body: FollowerFetched) -> Sequence[Finding]:
        known = state.registered.get(body.follower)
        if known is None:
            return NOTHING
        epoch, since_ns, process, ref = known
        if body.broker_epoch == epoch:
            taken = body.follower in state.former
            state.former.discard(body.follower)
            return (Exercised(event.ref, Evidence.PEER),) if taken else NOTHING
        if event.at_ns > since_ns + KNOWN_WITHIN_NS:
            message = (
                f"{event.process} counted a fetch of {body.client} as broker {body.follower}, "
                f"{span(event.at_ns - since_ns)} after {process} had registered under that id"
            )
            state.suspects.append(
                Late(
                    violated=Violated(event.ref, Evidence.PEER, message, (ref,)),
                    process=event.process,
                    from_ns=since_ns,
                    to_ns=event.at_ns,
                    period_ns=KNOWN_WITHIN_NS,
                    due_ns=since_ns,
                )
            )
        return NOTHING

    def end(self, state: _Newest, end: RunEnd) -> Sequence[Finding]:
        return judge_late(state.suspects, end)
