"""Rules about which epochs begin, and which end in time (KR-09, KR-10, KR-11)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    OBSERVERS,
    SECOND,
    Administered,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excuse,
    Exercised,
    FaultHealed,
    FaultInjected,
    Findings,
    ProcessExited,
    Rule,
    RunEnd,
    began_ns,
    judged,
    on,
    process_scope,
    slot_of,
    slot_scope,
    violated,
)
from fencepost_clusters.apache_kafka.rules.keys import by_partition
from fencepost_clusters.apache_kafka.rules.majorities import QUORUM_KINDS, Voters
from fencepost_kafka import (
    ControllerElected,
    ControllerResigned,
    PartitionCommitted,
    broker_of,
    partition_of,
)
from fencepost_kafka.judging.owed import STARTS


@dataclass(slots=True)
class _Starved:
    voters: Voters = field(default_factory=Voters)
    since: dict[tuple[str, int], tuple[int, Cause]] = field(default_factory=dict)
    """Each active controller that no majority reaches, with its epoch -> since when."""
    reported: set[tuple[str, int]] = field(default_factory=set)
    late: list[Deadline] = field(default_factory=list)
    """Each controller that was active for too long."""

    @property
    def bound_ns(self) -> int:
        """One and a half fetch timeouts, and a second for the log line."""
        return self.voters.fetch_timeout_ns * 3 // 2 + SECOND

    def overdue(self, at_ns: int, at: Cause | None) -> None:
        """Notes the controllers that were still active at that time, if that was too long. None:
        the end of the run; a finding is then about the event that began the excess."""
        for (process, epoch), (since_ns, by) in list(self.since.items()):
            took_ns = at_ns - since_ns
            # Without a known timeout there is no bound.
            if not self.voters.fetch_timeout_ns or took_ns <= self.bound_ns:
                continue
            late = violated(
                at or by,
                Evidence.SELF,
                "{process} was active in epoch {epoch} for {active_ns} though no majority of the "
                "voters reached it; it may be for {bound_ns}",
                (by,),
                process=process_scope(process),
                epoch=epoch,
                active_ns=took_ns,
                bound_ns=self.bound_ns,
            )
            actors = (process, *OBSERVERS)
            self.late.append(Deadline(late, actors, since_ns, at_ns, took_ns))
            # One finding for a term is enough.
            self.reported.add((process, epoch))
            del self.since[process, epoch]

    def healed(self, began_ns: int) -> None:
        """Links answer again before the harness has measured all of them: what was late only after
        that moment is none."""
        self.late = [one for one in self.late if began_ns - one.from_ns > self.bound_ns]

    def look(self, event: Event) -> None:
        """Notes which active controllers no majority reaches now."""
        terms = set(self.voters.active.items()) - self.reported
        starved = {term for term in terms if self.voters.starved(term[0])}
        began = (event.at_ns, event.ref)
        # A term that a majority reaches again drops out, so that its next silence counts anew.
        self.since = {term: self.since.get(term, began) for term in sorted(starved)}


@final
class WithoutMajorityResigns(Rule[_Starved]):
    """KR-09. Judged by the controller's own log lines: nothing else says that it gave its
    leadership up. While a fault stops the controller itself it is not judged, since its clock
    stands still, too. Exercised by each controller that lost its majority and resigned."""

    clause = "KR-09"
    absence = (STARTS,)
    state = _Starved

    @on(*QUORUM_KINDS)
    def step(self, state: _Starved, event: Event, body: Struct) -> Findings:
        # The event of a fault comes once it is measured. What it does begins earlier.
        state.overdue(began_ns(event), event.ref)
        if isinstance(body, FaultHealed):
            state.healed(began_ns(event))
        resigned = isinstance(body, ControllerResigned) and (event.process, body.epoch)
        # Asked before the event is learned: afterwards the controller is not active any more.
        found = (Exercised(event.ref, Evidence.SELF),) if resigned in state.since else ()
        state.voters.learn(event)
        state.look(event)
        return found

    def end(self, state: _Starved, end: RunEnd) -> Findings:
        state.overdue(end.ended_at_ns, None)
        return judged(state.late, end)


@dataclass(slots=True)
class _Newest:
    """The newest record of a partition."""

    record: PartitionCommitted | None = None


@final
class IsrBeginsNoEpoch(Rule[_Newest]):
    """KR-10. Judged by two states of a partition in the metadata log, one after the other. An epoch
    that is higher by more than one is not judged: the observer may have missed a state. Exercised
    by each ISR that a replica left while the leader stayed."""

    clause = "KR-10"
    keys = staticmethod(by_partition)
    state = _Newest

    @on(PartitionCommitted)
    def step(self, state: _Newest, event: Event, now: PartitionCommitted) -> Findings:
        before = state.record
        # Two observers read the log, so each record comes twice.
        if before is not None and now.offset <= before.offset:
            return NOTHING
        state.record = now
        if before is None:
            return NOTHING
        # With a replica removed, an epoch may begin though the leader stays.
        stays = now.leader == before.leader >= 0 and set(before.replicas) <= set(now.replicas)
        gone = sorted(set(before.isr) - set(now.isr))
        if stays and now.leader_epoch == before.leader_epoch + 1:
            began = (
                "leader epoch {epoch} of {partition} began at offset {offset}, though broker "
                "{leader} goes on as the leader: its ISR became {isr}, from {former_isr}"
            )
            begun = violated(
                event.ref,
                Evidence.PEER,
                began + (", without brokers {gone}" if gone else ""),
                epoch=now.leader_epoch,
                partition=partition_of(now),
                offset=now.offset,
                leader=broker_of(now.leader),
                isr=tuple(now.isr),
                former_isr=tuple(before.isr),
                gone=tuple(map(broker_of, gone)),
            )
            return (begun,)
        if stays and gone and now.leader_epoch == before.leader_epoch:
            return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING


@dataclass(frozen=True, slots=True)
class _Return:
    """A voter that was cut off from all others returned: when, and under which controller."""

    voter: str
    began_ns: int
    until_ns: int
    active: str
    epoch: int
    by: Cause


@dataclass(slots=True)
class _Returns:
    voters: Voters = field(default_factory=Voters)
    terms: list[tuple[int, str, int]] = field(default_factory=list)
    """Each election: when, which process, in which epoch."""
    resigned: dict[tuple[str, int], tuple[int, ControllerResigned, Cause]] = field(
        default_factory=dict
    )
    returned: _Return | None = None
    found: list[Deadline] = field(default_factory=list)

    def returning(self, event: Event, body: FaultHealed) -> _Return | None:
        """The return of a voter that a fault ended by healing, if nothing else acts upon the
        quorum."""
        fault = self.voters.faults.now.get(body.fault_id)
        since_ns = began_ns(event)
        away_ns = 2 * self.voters.fetch_timeout_ns
        # A voter that was away for a shorter time may not have stood for election, so its return
        # says nothing.
        if fault is None or not fault.severs or not away_ns or since_ns - fault.began_ns < away_ns:
            return None
        terms = [term for term in self.terms if term[0] <= since_ns]
        slots = set(self.voters.processes)
        alone = [one for one in slots if _around(one, slots) <= fault.directions]
        # With two voters, either is cut off from all others, and there is no majority that could go
        # on.
        if len(alone) != 1 or len(slots) < 3 or not terms or self._disturbed(body.fault_id):
            return None
        _, active, epoch = terms[-1]
        gone = self.resigned.get((active, epoch))
        # A voter that led while it was cut off deposes nobody but itself.
        if slot_of(active) == alone[0] or (gone is not None and gone[0] < since_ns):
            return None
        until_ns = event.at_ns + away_ns
        return _Return(
            voter=alone[0],
            began_ns=since_ns,
            until_ns=until_ns,
            active=active,
            epoch=epoch,
            by=event.ref,
        )

    def _disturbed(self, but: str) -> bool:
        """Whether another fault acts upon a controller, or upon a link between two, or one is
        dead."""
        slots = set(self.voters.processes)
        return not all(self.voters.processes.values()) or any(
            touches(one, slots) for one in self.voters.faults.now.values() if one.fault_id != but
        )

    def judge(self, at_ns: int) -> Findings:
        """The finding about the newest return, once there is one."""
        back = self.returned
        if back is None:
            return NOTHING
        gone = self.resigned.get((back.active, back.epoch))
        if gone is None and at_ns <= back.until_ns:
            return NOTHING
        self.returned = None
        # A resignation long after the return has another cause.
        if gone is None or gone[0] > back.until_ns:
            return (Exercised(back.by, Evidence.SELF),)
        if gone[1].reason == "higher_epoch":
            deposed = violated(
                gone[2],
                Evidence.SELF,
                "{process} lost the leadership of epoch {epoch} when {slot} returned, which had "
                "been cut off from all other voters",
                (back.by,),
                process=process_scope(back.active),
                epoch=back.epoch,
                slot=slot_scope(back.voter),
            )
            began_ns, gone_ns = back.began_ns, gone[0]
            took_ns = gone_ns - began_ns
            voters = (*self.voters.processes, *OBSERVERS)
            self.found.append(Deadline(deposed, voters, began_ns, gone_ns, took_ns, omission=False))
        return NOTHING


@final
class ReturnDeposesNone(Rule[_Returns]):
    """KR-11. A voter was cut off from all others for two fetch timeouts or more, while nothing else
    acted upon the quorum, and no other voters were asked for. Judged by the log line in which the
    active controller gives its leadership up for a higher epoch, within two fetch timeouts of the
    return. Exercised by each return under a controller that goes on."""

    clause = "KR-11"
    state = _Returns

    @on(*QUORUM_KINDS, Administered)
    def step(self, state: _Returns, event: Event, body: Struct) -> Findings:
        found = state.judge(event.at_ns)
        back = state.returning(event, body) if isinstance(body, FaultHealed) else None
        state.voters.learn(event)
        match body:
            case ControllerElected():
                state.terms.append((event.at_ns, event.process, body.epoch))
            case ControllerResigned():
                state.resigned[event.process, body.epoch] = event.at_ns, body, event.ref
            # From here on, something else than the return may cost the leader its term.
            case ProcessExited() if slot_of(body.ended) in state.voters.processes:
                state.returned = None
            case Administered(operation="add_voter" | "remove_voter"):
                state.returned = None
            case FaultInjected() if (one := state.voters.faults.now.get(body.fault_id)) is not None:
                if touches(one, state.voters.processes):
                    # It is recorded once it took effect: what came of it may be recorded before.
                    state.returned = None
                    state.found = [found for found in state.found if found.to_ns < one.began_ns]
            case FaultHealed() if back is not None:
                state.returned = back
        return (*found, *state.judge(event.at_ns))

    def end(self, state: _Returns, end: RunEnd) -> Findings:
        last = state.judge(end.ended_at_ns) if end.complete else NOTHING
        return (*last, *judged(state.found, end))


def _around(slot: str, slots: Collection[str]) -> frozenset[tuple[str, str]]:
    """Both directions of every link between a slot and the others."""
    others = [one for one in slots if one != slot]
    return frozenset(pair for one in others for pair in ((slot, one), (one, slot)))


def touches(fault: Excuse, slots: Collection[str]) -> bool:
    """Whether a fault acts upon one of these slots, or upon a link between two of them."""
    if not fault.directions:
        return not fault.slots.isdisjoint(slots)
    return any(a in slots and b in slots for a, b in fault.directions)
