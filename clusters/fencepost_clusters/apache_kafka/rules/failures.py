"""Rules about what makes an active controller fail (KR-36), and any node (KR-39)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    HARMS_DISK,
    NOTHING,
    Cause,
    Event,
    Evidence,
    Excused,
    Exercised,
    FaultInjected,
    Findings,
    NodeStarted,
    Reason,
    Rule,
    RunEnd,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_clusters.apache_kafka.log_memory import ControllerFailed, FaultReported
from fencepost_kafka import ControllerResigned


@dataclass(slots=True)
class _Failures:
    known: set[tuple[str, str]] = field(default_factory=set)
    """What failed, and how. Each successor may fail in the same way, many times."""


@final
class CarriesOn(Rule[_Failures]):
    """KR-36. By the controller's own word, once for each request, or each thread, that fails in one
    way. Exercised by each leadership that ends for another reason."""

    clause = "KR-36"
    state = _Failures

    @on(ControllerFailed, ControllerResigned)
    def step(self, state: _Failures, event: Event, body: Struct) -> Findings:
        match body:
            case ControllerFailed() if (body.doing, body.error) not in state.known:
                state.known.add((body.doing, body.error))
                failed = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} gave epoch {epoch} up, since {doing} failed: {error}",
                    process=process_scope(event.process),
                    epoch=body.epoch,
                    doing=body.doing,
                    error=body.error,
                )
                return (failed,)
            case ControllerResigned() if body.reason != "failed":
                return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING


@dataclass(slots=True)
class _Faults:
    sound: dict[str, Cause] = field(default_factory=dict)
    """The processes of nodes that have met no fault, each with its start."""
    known: set[tuple[str, str]] = field(default_factory=set)
    """Processes, and which faults they met. More of a kind usually follow from the first."""
    harmed: dict[str, str] = field(default_factory=dict)
    """slot -> the fault that took data from its disk. What a node makes of that is its own word."""


@final
class MeetsNoFault(Rule[_Faults]):
    """KR-39. By the node's own word, once for each process and kind of fault. A node whose disk
    lost data is excused: it may find no other answer. Exercised by each process that met none."""

    clause = "KR-39"
    state = _Faults

    @on(FaultReported, NodeStarted, FaultInjected)
    def step(self, state: _Faults, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted():
                state.sound[event.process] = event.ref
            case FaultInjected(receipt=True):
                state.harmed |= dict.fromkeys(sorted(body.acts(*HARMS_DISK)), body.fault_id)
            case FaultReported():
                state.sound.pop(event.process, None)
                if (event.process, body.what) not in state.known:
                    state.known.add((event.process, body.what))
                    met = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} met a {what} fault: {error}",
                        process=process_scope(event.process),
                        what=body.what,
                        error=body.error,
                    )
                    fault = state.harmed.get(slot_of(event.process), "")
                    if fault:
                        harmed = Reason.of("its disk was harmed by {fault}", fault=fault)
                        return (Excused.of(met, harmed),)
                    return (met,)
        return NOTHING

    def end(self, state: _Faults, end: RunEnd) -> Findings:
        return [Exercised(at, Evidence.SELF) for at in state.sound.values()]
