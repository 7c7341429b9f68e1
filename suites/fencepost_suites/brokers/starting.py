"""The start of a broker: the steps that it must complete before it registers."""

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
    Findings,
    Rule,
    RunEnd,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    HeartbeatAnswered,
    HeartbeatSent,
    RecoveryEnded,
    RecoveryStarted,
    broker_of,
)
from fencepost_suites.common.keys import by_process


@dataclass(slots=True)
class _Start:
    """How far one process has recovered its logs."""

    began: Cause | None = None
    logs: int = -1
    registers: Cause | None = None
    """Its first heartbeat."""
    settled: bool = False
    """Whether it was accepted."""
    accused: bool = False
    answered: Findings = NOTHING
    """What is wrong if it never tells of its requests: a controller answered one while it
    recovered. Of a process that tells of them, that controller would be wrong."""


@final
class RegistersRecovered(Rule[_Start]):
    """REG-02. The controller's evidence is that it accepted the registration, or answered a process
    that recovers and never tells of its requests. Exercised if the broker had logs to recover."""

    clause = "REG-02"
    keys = staticmethod(by_process)
    state = _Start

    @on(RecoveryStarted, RecoveryEnded, HeartbeatSent, HeartbeatAnswered)
    def step(self, state: _Start, event: Event, body: Struct) -> Findings:
        match body:
            case RecoveryStarted():
                state.began, state.logs = event.ref, -1
                if state.registers is not None:
                    return self._early(state, event, body.node_id, state.registers)
            case RecoveryEnded():
                state.logs = max(0, body.logs)  # also if it does not say how many there were
            case HeartbeatSent():
                state.registers, state.answered = state.registers or event.ref, NOTHING
                if state.began is not None and state.logs < 0:
                    return self._early(state, event, body.broker_id, state.began)
            case HeartbeatAnswered(client=client) if state.began is not None and state.logs < 0:
                if state.registers is None and not state.answered:
                    early = _early(event, Evidence.PEER, client, body.broker_id, state.began)
                    state.answered = (early,)
            case HeartbeatAnswered(request_epoch=-1, error="NONE") if not state.settled:
                state.settled = True
                if state.logs > 0:
                    return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    @staticmethod
    def _early(state: _Start, event: Event, broker: int, because: Cause) -> Findings:
        """The process recovers its logs, and has registered already."""
        if state.accused:
            return NOTHING
        state.settled = state.accused = True
        return (_early(event, Evidence.SELF, event.process, broker, because),)

    def end(self, state: _Start, end: RunEnd) -> Findings:
        return state.answered


def _early(event: Event, by: Evidence, process: str, broker: int, because: Cause) -> Violated:
    return violated(
        event.ref,
        by,
        "{process} registers before it has recovered its logs",
        (because,),
        process=process_scope(process),
        broker=broker_of(broker),
    )
