"""The controller that renews leases: it is the active one, and resigns once it is cut off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Deadline,
    Effect,
    Event,
    Evidence,
    Exercised,
    FaultHealed,
    FaultInjected,
    Findings,
    NodeStarted,
    ProcessExited,
    ProcessSpawned,
    Rule,
    RunEnd,
    Scope,
    Violated,
    began_ns,
    judged,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_kafka import (
    ControllerElected,
    ControllerResigned,
    HeartbeatAnswered,
    HeartbeatRefused,
    LeaseGranted,
    QuorumLearned,
    broker_of,
)
from fencepost_suites.brokers.leases import period_ns_of


@dataclass(slots=True)
class _Active:
    """The controllers that are active by their own word, and whom they name as the active one."""

    active: set[str] = field(default_factory=set)
    lost: dict[str, Cause] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    """process -> the id of its controller."""
    elected: set[str] = field(default_factory=set)
    named: dict[int, Cause] = field(default_factory=dict)
    """id -> the first answer by which an inactive controller names it as the active one."""


@final
class OnlyActiveControllerAnswers(Rule[_Active]):
    """QC-22. The broker's evidence is the refusal that it received. Whom an inactive controller
    names must have been elected at some time, by its own word: which one of these is active now,
    an inactive one may not have heard yet. But it knows that it is not itself."""

    clause = "QC-22"
    state = _Active

    @on(NodeStarted, ControllerElected, ControllerResigned, HeartbeatAnswered, HeartbeatRefused)
    def step(self, state: _Active, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted(role="controller"):
                state.ids[event.process] = body.node_id
            case ControllerElected():
                state.active.add(event.process)
                state.elected.add(event.process)
                state.lost.pop(event.process, None)
            case ControllerResigned():
                state.active.discard(event.process)
                state.lost[event.process] = event.ref
            case HeartbeatRefused(error="NOT_CONTROLLER"):
                return (Exercised(event.ref, Evidence.PEER),)
            case HeartbeatAnswered():
                return self._answered(state, event, body)
        return NOTHING

    @staticmethod
    def _answered(state: _Active, event: Event, body: HeartbeatAnswered) -> Findings:
        active = event.process in state.active
        mine = state.ids.get(event.process)
        named = body.active_controller
        # -1: it names nobody.
        if body.error == "NOT_CONTROLLER" and not active:
            if named == mine or named < -1:
                return (_misnamed(event.ref, named),)
            if named != -1:
                state.named.setdefault(named, event.ref)
            return (Exercised(event.ref, Evidence.SELF),)
        if active and body.active:
            wrong = mine is not None and named not in (mine, -1)
            return (_misnamed(event.ref, named),) if wrong else NOTHING
        lost = state.lost.get(event.process)
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process}, not the active controller, answered {client} with {error}, next "
            "state {state}",
            () if lost is None else (lost,),
            process=process_scope(event.process),
            client=process_scope(body.client),
            error=body.error,
            state=body.next_state,
            broker=broker_of(body.broker_id),
        )
        return (broken,)

    def end(self, state: _Active, end: RunEnd) -> Findings:
        leaders = {state.ids.get(process) for process in state.elected}
        # Somebody was elected whose id is not known: it may be the one that is named.
        if None in leaders or not end.complete:
            return NOTHING
        return [_misnamed(at, one) for one, at in state.named.items() if one not in leaders]


def _misnamed(at: Cause, named: int) -> Violated:
    """A controller names a wrong one as the active controller."""
    return violated(
        at,
        Evidence.PEER,
        "{process} named controller {controller} as the active one, which it cannot be",
        process=process_scope(at.process),
        controller=Scope("controller", str(named)),
    )


@dataclass(slots=True)
class _Voters:
    """The voters of a quorum that never changes, and since when a majority is dead or cut off.

    The harness tells who runs, so that no node's word is needed. A voter of which no process was
    ever seen counts as alive, and so does a process that was started and may still hang. If two
    nodes ever take different controllers for the quorum, nothing is known from then on: voters are
    added and removed, and nobody but the leader knows when that counts.
    """

    voters: frozenset[int] | None = None
    known: bool = True
    slots: dict[int, set[str]] = field(default_factory=dict)
    """node id -> the slots whose processes had it."""
    alive: dict[str, set[str]] = field(default_factory=dict)
    """slot -> its processes that run."""
    dead: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    """slot without a process -> when its last one ended, and that event."""
    cuts: dict[str, tuple[int, Cause, frozenset[tuple[str, str]]]] = field(default_factory=dict)
    """Fault that severs links -> when that was measured, that event, and the directions."""

    def take(self, event: Event, body: Struct) -> None:
        """Applies an event."""
        match body:
            case QuorumLearned():
                voters = frozenset(body.voters)
                self.known = self.known and self.voters in (None, voters)
                self.voters = voters
            case ProcessSpawned():
                self._runs(body.started, body.node_id)
            case NodeStarted():
                self._runs(event.process, body.node_id)
            case ProcessExited():
                slot = slot_of(body.ended)
                running = self.alive.get(slot, set())
                running.discard(body.ended)
                if not running:
                    self.dead[slot] = event.at_ns, event.ref
            case FaultInjected(receipt=True) if body.acts(Effect.SEVERS):
                self.cuts[body.fault_id] = event.at_ns, event.ref, body.pairs()
            case FaultHealed():
                self.cuts.pop(body.fault_id, None)

    def _runs(self, process: str, node_id: int) -> None:
        slot = slot_of(process)
        self.slots.setdefault(node_id, set()).add(slot)
        self.alive.setdefault(slot, set()).add(process)
        self.dead.pop(slot, None)

    def _cut(self, one: str, other: str) -> tuple[int, Cause] | None:
        """Since when no data passes between two slots, in either direction; None if it may."""
        ways: list[tuple[int, Cause]] = []
        for way in ((one, other), (other, one)):
            since = [(at_ns, at) for at_ns, at, pairs in self.cuts.values() if way in pairs]
            if not since:
                return None
            ways.append(min(since, key=lambda one: one[0]))
        return max(ways, key=lambda one: one[0])

    def no_majority_since(self, process: str) -> tuple[int, Cause] | None:
        """When the last voter died, or was cut off from a process, that this needed for a
        majority, and that event; None if it may have one."""
        if not (self.known and self.voters):
            return None
        deaths: list[tuple[int, Cause]] = []
        for voter in self.voters:
            slots = self.slots.get(voter, set())
            lost = [self.dead.get(slot) or self._cut(slot_of(process), slot) for slot in slots]
            gone = [one for one in lost if one is not None]
            if gone and len(gone) == len(lost):
                # A second process with its id may run in another slot: it is gone with the last.
                deaths.append(max(gone, key=lambda one: one[0]))
        deaths.sort(key=lambda one: one[0])
        # Of three voters, the second death is the one that matters; of four, the second, too.
        needed = (len(self.voters) + 1) // 2
        return deaths[needed - 1] if len(deaths) >= needed else None


@dataclass(slots=True)
class _Terms:
    """The controllers that were elected, resigned without a majority, and renewed leases."""

    elected: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    """epoch -> when, and the event."""
    renewed: set[int] = field(default_factory=set)
    resigned: dict[int, Cause] = field(default_factory=dict)
    """epoch -> the resignation without a majority, until a successor is elected."""
    processes: dict[int, str] = field(default_factory=dict)
    """epoch -> the process that was elected in it last."""
    newest: dict[str, int] = field(default_factory=dict)
    """process -> the epoch in which it was elected last."""
    voters: _Voters = field(default_factory=_Voters)
    alone: set[tuple[str, Cause]] = field(default_factory=set)
    """The controllers that are found to go on without a majority, each with the end of it."""
    apart: list[Deadline] = field(default_factory=list)
    """What is wrong with those; until a fault is healed, as its voters may have come back then."""
    suspects: list[Deadline] = field(default_factory=list)

    def term_of(self, process: str, epoch: int) -> int:
        """The epoch in which a process renewed a lease, if it names this one: a controller that was
        elected acts by its own election, and cannot have the epoch of another one."""
        if self.processes.get(epoch) == process:
            return epoch
        return self.newest.get(process, epoch)

    def successor_of(self, epoch: int) -> tuple[int, Cause] | None:
        """When the first controller of a later epoch was elected."""
        later = [self.elected[e] for e in self.elected if e > epoch]
        return min(later, key=lambda one: one[0], default=None)


@final
class IsolatedControllerResigns(Rule[_Terms]):
    """QC-36. A successor treats every lease as running for one full period from its election. So
    no lease granted in an earlier epoch may end later than that, plus a tenth of the lease. The
    broker's evidence is the lease it holds; the controller's is that it still accepts
    heartbeats, in whatever epoch it says that it does.

    Without a successor, a controller that has lost a majority of the voters must have noticed it by
    the time at which one could have fenced its brokers. Two leases are allowed from the death of
    the last voter that was needed, or from when it was cut off."""

    clause = "QC-36"
    state = _Terms

    @on(QuorumLearned, ProcessSpawned, NodeStarted, ProcessExited, FaultInjected, FaultHealed)
    def _voters(self, state: _Terms, event: Event, body: Struct) -> Findings:
        state.voters.take(event, body)
        if isinstance(body, FaultHealed):
            # The voters may have been reached again since the healing began.
            since_ns = began_ns(event)
            state.apart = [one for one in state.apart if one.to_ns < since_ns]
        return NOTHING

    @on(ControllerElected, ControllerResigned, HeartbeatAnswered, LeaseGranted)
    def step(self, state: _Terms, event: Event, body: Struct) -> Findings:
        match body:
            case ControllerElected():
                state.elected.setdefault(body.epoch, (event.at_ns, event.ref))
                state.processes[body.epoch] = event.process
                state.newest[event.process] = body.epoch
                before = [epoch for epoch in state.resigned if epoch < body.epoch]
                for epoch in before:
                    del state.resigned[epoch]
                if before:
                    return (Exercised(event.ref, Evidence.PEER),)
            case ControllerResigned(reason="no_majority") if body.epoch in state.renewed:
                state.resigned[body.epoch] = event.ref
            case HeartbeatAnswered(error="NONE", active=True):
                self._renewed(state, event, body)
                self._alone(state, event, body)
            case LeaseGranted():
                self._granted(state, event, body)
        return NOTHING

    @staticmethod
    def _renewed(state: _Terms, event: Event, body: HeartbeatAnswered) -> None:
        epoch = state.term_of(event.process, body.controller_epoch)
        state.renewed.add(epoch)
        successor = state.successor_of(epoch)
        period_ns = body.lease_period_ms * MS
        if successor is None or event.at_ns <= successor[0] + period_ns // 10:
            return
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} still renewed the lease of {client} in controller epoch {epoch}, "
            "{after_ns} after a successor had been elected",
            (successor[1],),
            process=process_scope(event.process),
            client=process_scope(body.client),
            epoch=epoch,
            after_ns=event.at_ns - successor[0],
            broker=broker_of(body.broker_id),
        )
        # A controller that stood still at any time since a lease before its successor's election
        # may not have noticed that it lost its majority.
        from_ns = successor[0] - period_ns
        state.suspects.append(
            Deadline(broken, (event.process,), from_ns, event.at_ns, period_ns, omission=False)
        )

    @staticmethod
    def _alone(state: _Terms, event: Event, body: HeartbeatAnswered) -> None:
        lost = state.voters.no_majority_since(event.process)
        period_ns = body.lease_period_ms * MS
        if lost is None or event.at_ns <= lost[0] + 2 * period_ns:
            return
        if (event.process, lost[1]) in state.alone:
            return
        state.alone.add((event.process, lost[1]))
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} still renewed the lease of {client} {after_ns} after a majority of the "
            "voters had ended, or could not be reached any more",
            (lost[1],),
            process=process_scope(event.process),
            client=process_scope(body.client),
            after_ns=event.at_ns - lost[0],
            broker=broker_of(body.broker_id),
        )
        state.apart.append(
            Deadline(broken, (event.process,), lost[0], event.at_ns, period_ns, omission=False)
        )

    @staticmethod
    def _granted(state: _Terms, event: Event, body: LeaseGranted) -> None:
        successor = state.successor_of(body.controller_epoch)
        period_ns = period_ns_of(body)
        if successor is None or body.ends_at_ns <= successor[0] + period_ns + period_ns // 10:
            return
        over_ns = body.ends_at_ns - successor[0] - period_ns
        granter = state.processes.get(body.controller_epoch, event.process)
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} holds a lease of controller epoch {epoch} that ends {after_ns} after its "
            "successor may have fenced it",
            (successor[1],),
            process=process_scope(event.process),
            epoch=body.controller_epoch,
            after_ns=over_ns,
            broker=broker_of(body.broker_id),
            controller=process_scope(granter),
        )
        from_ns = successor[0] - period_ns
        state.suspects.append(
            Deadline(broken, (granter,), from_ns, event.at_ns, period_ns, omission=False)
        )

    def end(self, state: _Terms, end: RunEnd) -> Findings:
        return judged((*state.suspects, *state.apart), end)
