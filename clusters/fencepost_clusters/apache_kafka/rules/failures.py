"""Rules about what makes an active controller fail (KR-36), and any node (KR-39)."""

from __future__ import annotations

from collections.abc import Sequence
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
    Finding,
    Key,
    NodeStarted,
    RunEnd,
    process_scope,
    slot_of,
    violated,
    whole_run,
)
from fencepost_clusters.apache_kafka.log_memory import ControllerFailed, FaultReported
from fencepost_kafka import ControllerResigned


@dataclass(slots=True)
class _Failures:
    known: set[tuple[str, str]] = field(default_factory=set)
    """What failed, and how. Each successor may fail in the same way, many times."""


@final
@dataclass(frozen=True, slots=True)
class CarriesOn:
    """KR-36. By the controller's own word, once for each request, or each thread, that fails in one
    way. Exercised by each leadership that ends for another reason."""

    clause: str = "KR-36"
    kinds: frozenset[type[Struct]] = frozenset({ControllerFailed, ControllerResigned})
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Failures:
        return _Failures()

    def step(self, state: _Failures, event: Event) -> tuple[_Failures, Sequence[Finding]]:
        match event.body:
            case ControllerFailed() as body if (body.doing, body.error) not in state.known:
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
                return state, (failed,)
            case ControllerResigned() as body if body.reason != "failed":
                return state, (Exercised(event.ref, Evidence.SELF),)
        return state, NOTHING

    def end(self, state: _Failures, end: RunEnd) -> Sequence[Finding]:
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
@dataclass(frozen=True, slots=True)
class MeetsNoFault:
    """KR-39. By the node's own word, once for each process and kind of fault. A node whose disk
    lost data is excused: it may find no other answer. Exercised by each process that met none."""

    clause: str = "KR-39"
    kinds: frozenset[type[Struct]] = frozenset({FaultReported, NodeStarted, FaultInjected})
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Faults:
        return _Faults()

    def step(self, state: _Faults, event: Event) -> tuple[_Faults, Sequence[Finding]]:
        match event.body:
            case NodeStarted():
                state.sound[event.process] = event.ref
            case FaultInjected(receipt=True) as body:
                state.harmed |= dict.fromkeys(sorted(body.acts(*HARMS_DISK)), body.fault_id)
            case FaultReported() as body:
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
                        message = f"{met.message}; its disk was harmed by {fault}"
                        return state, (Excused(event.ref, message),)
                    return state, (met,)
        return state, NOTHING

    def end(self, state: _Faults, end: RunEnd) -> Sequence[Finding]:
        return [Exercised(at, Evidence.SELF) for at in state.sound.values()]
