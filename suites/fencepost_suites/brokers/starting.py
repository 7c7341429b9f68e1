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


@final
class RegistersRecovered(Rule[_Start]):
    """REG-02. The controller's evidence is that it accepted the registration. Exercised if the
    broker had logs to recover."""

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
                state.logs = body.logs
            case HeartbeatSent():
                state.registers = state.registers or event.ref
                if state.began is not None and state.logs < 0:
                    return self._early(state, event, body.broker_id, state.began)
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
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} registers before it has recovered its logs",
            (because,),
            process=process_scope(event.process),
            broker=broker_of(broker),
        )
        return (broken,)
