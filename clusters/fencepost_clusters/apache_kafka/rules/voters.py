"""A rule about the voters of the quorum, which can be replaced (QC-29)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    OBSERVERS,
    Deadline,
    Event,
    Evidence,
    Excused,
    Excuses,
    Exercised,
    FaultHealed,
    FaultInjected,
    Findings,
    NodeStarted,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
    Scope,
    judged,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_clusters.apache_kafka.rules.keys import KRAFT
from fencepost_kafka import HeartbeatAnswered, LeaseExpired, QuorumLearned


@dataclass(slots=True)
class _Known:
    addresses: dict[int, str] = field(default_factory=dict)
    """controller id -> where the voters' records have it."""
    given: dict[str, frozenset[str]] = field(default_factory=dict)
    """broker process -> the addresses that it was configured with."""
    voters: frozenset[int] = frozenset()
    """The newest set that any node has read."""
    changed_ns: int = 0
    """When that was another one."""
    controllers: dict[str, int] = field(default_factory=dict)
    """process -> controller id."""
    began: dict[int, int] = field(default_factory=dict)
    """controller id -> when its living process began."""
    brokers: dict[int, str] = field(default_factory=dict)
    """broker id -> its living process."""
    faults: Excuses = field(default_factory=Excuses)
    touched: dict[str, tuple[int, str]] = field(default_factory=dict)
    """broker process -> when a fault upon it or its links to controllers was healed, and which."""
    kept: set[tuple[str, int]] = field(default_factory=set)
    """Each broker process that a controller was strange to, with that controller's id."""
    ended: list[Deadline] = field(default_factory=list)

    def learn(self, event: Event) -> None:
        match event.body:
            case QuorumLearned() as body:
                self.addresses.update(zip(body.voters, body.endpoints, strict=True))
                if self.voters != frozenset(body.voters):
                    self.voters, self.changed_ns = frozenset(body.voters), event.at_ns
                if body.bootstrap:
                    self.given[event.process] = frozenset(body.bootstrap)
            case NodeStarted(role="controller", node_id=node_id):
                self.controllers[event.process] = node_id
                self.began[node_id] = event.at_ns
            case NodeStarted(node_id=node_id):
                self.brokers[node_id] = event.process
            case ProcessExited(ended=ended):
                self.brokers = {one: p for one, p in self.brokers.items() if p != ended}
                self.began.pop(self.controllers.get(ended, -1), None)
            case FaultInjected():
                self.faults.take(event)
            case FaultHealed(fault_id=fault_id):
                for process in self.brokers.values():
                    if self._affected(process, fault_id):
                        self.touched[process] = event.at_ns, fault_id
                self.faults.take(event)

    def _needed(self, slot: str) -> bool:
        return any(slot_of(process) == slot for process in self.controllers)

    def _affected(self, process: str, fault_id: str) -> bool:
        fault = self.faults.now.get(fault_id)
        return fault is not None and fault.reason(process, self._needed) is not None

    def strange(self, controller: str, broker: int) -> tuple[str, int] | None:
        """The broker's process and the controller's id, if the broker was configured without the
        address of that controller."""
        process, node = self.brokers.get(broker, ""), self.controllers.get(controller, -1)
        given, address = self.given.get(process), self.addresses.get(node)
        if given is None or address is None or address in given:
            return None
        return process, node

    def excuse(self, process: str, from_ns: int) -> Reason | None:
        """Why a broker may not have found the active controller since then: a fault, or no voter
        that it was configured with."""
        guides = [
            voter
            for voter in self.voters
            if self.addresses[voter] in self.given[process]
            and self.began.get(voter, from_ns + 1) <= from_ns
        ]
        if not guides or self.changed_ns > from_ns:
            return Reason("no voter that it was configured with had voted and run for that long")
        for fault_id, fault in self.faults.now.items():
            if self._affected(process, fault_id):
                return fault.reason(process, self._needed)
        healed_ns, fault_id = self.touched.get(process, (-1, ""))
        if not fault_id or healed_ns < from_ns:
            return None
        return Reason.of("{fault} was healed", fault=fault_id)


@final
class FollowsNewVoters(Rule[_Known]):
    """QC-29. The active controller's evidence: it answers heartbeats, or ends a session. A broker
    finds it only through the controllers that it was configured with, and these know it while they
    vote (KIP-853). So one of them must have been a voter, and alive, for the session. Exercised
    once by each broker that gets an answer from a controller without whose address it was
    configured. Excused by a fault that affected the broker, or its link to a controller, within
    the session."""

    clause = "QC-29"
    planes = KRAFT
    state = _Known

    @on(
        QuorumLearned,
        NodeStarted,
        ProcessExited,
        FaultInjected,
        FaultHealed,
        HeartbeatAnswered,
        LeaseExpired,
    )
    def step(self, state: _Known, event: Event, body: Struct) -> Findings:
        match body:
            case HeartbeatAnswered(error="NONE"):
                pair = state.strange(event.process, body.broker_id)
                if pair is not None and pair not in state.kept:
                    state.kept.add(pair)
                    return (Exercised(event.ref, Evidence.PEER),)
            case LeaseExpired():
                return self._expired(state, event, body)
            case _:
                state.learn(event)
        return NOTHING

    @staticmethod
    def _expired(state: _Known, event: Event, body: LeaseExpired) -> Findings:
        pair = state.strange(event.process, body.broker_id)
        if pair is None:
            return NOTHING
        process, node = pair
        period_ns = body.lease_period_ms * MS
        unheard = violated(
            event.ref,
            Evidence.PEER,
            "{process} heard nothing from {other} for {lease_ms} ms; {other} was configured "
            "without the address of controller {controller}",
            process=process_scope(event.process),
            other=process_scope(process),
            lease_ms=body.lease_period_ms,
            controller=Scope("controller", str(node)),
        )
        excuse = state.excuse(process, event.at_ns - period_ns)
        if excuse is not None:
            return (Excused.of(unheard, excuse),)
        since_ns = event.at_ns - period_ns
        state.ended.append(
            Deadline(
                unheard,
                (event.process, process, *OBSERVERS),
                since_ns,
                event.at_ns,
                period_ns,
                omission=False,
            )
        )
        return NOTHING

    def end(self, state: _Known, end: RunEnd) -> Findings:
        return judged(state.ended, end)
