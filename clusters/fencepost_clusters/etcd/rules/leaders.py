"""ETCD-01: at most one member leads in a term.

The evidence is the members' logs. The status API is no evidence, since it reads the leader and the
term one after the other, and the term is that of the last entry applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Facts,
    Finding,
    Findings,
    Rule,
    Scope,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.etcd.events import BecameLeader, LeaderElected
from fencepost_clusters.etcd.rules.keys import by_term


@dataclass(slots=True)
class _Term:
    """The member that leads a term, the process that logged it, and its first event."""

    leader: str = ""
    process: str = ""
    at: Cause | None = None


@final
class OneLeaderATerm(Rule[_Term]):
    """ETCD-01. Two processes with one member's id are two leaders."""

    clause = "ETCD-01"
    keys = staticmethod(by_term)
    state = _Term

    @on(BecameLeader, LeaderElected)
    def step(self, state: _Term, event: Event, body: Struct) -> Findings:
        match body:
            case BecameLeader(member=member, term=term):
                if state.process not in {"", event.process}:
                    return (_broken(state, event, "leads", term, member),)
                found = self._agrees(state, event, member, term)
                state.leader, state.process = state.leader or member, event.process
                state.at = state.at or event.ref
                return (found,)
            case LeaderElected(leader=leader, term=term):
                found = self._agrees(state, event, leader, term)
                if not state.leader:
                    state.leader, state.process, state.at = leader, "", event.ref
                return (found,)
        return NOTHING

    @staticmethod
    def _agrees(state: _Term, event: Event, leader: str, term: int) -> Finding:
        if state.leader not in {"", leader}:
            return _broken(state, event, f"names {leader} as leader", term, leader)
        peer = isinstance(event.body, LeaderElected) and event.body.member != leader
        return Exercised(event.ref, Evidence.PEER if peer else Evidence.SELF)


def _broken(state: _Term, event: Event, did: str, term: int, leader: str) -> Violated:
    other: Facts = {"other": process_scope(state.process)} if state.process else {}
    return violated(
        event.ref,
        Evidence.SELF,
        "{process} {did} in term {term}, in which {known} leads",
        () if state.at is None else (state.at,),
        process=process_scope(event.process),
        did=did,
        term=Scope("term", str(term)),
        known=state.process or state.leader,
        leader=leader,
        other_leader=state.leader,
        **other,
    )
