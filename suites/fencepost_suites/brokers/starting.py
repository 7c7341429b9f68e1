"""The start of a broker: the steps that it must complete before it registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Finding,
    Key,
    RunEnd,
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
    settled: bool = False


@final
class RegistersRecovered(Struct, frozen=True):
    """REG-02. The controller's evidence is that it accepted the registration. Exercised if the
    broker had logs to recover."""

    clause: str = "REG-02"
    kinds: frozenset[type[Struct]] = frozenset(
        {RecoveryStarted, RecoveryEnded, HeartbeatSent, HeartbeatAnswered}
    )
    keys = staticmethod(by_process)

    def start(self, key: Key) -> _Start:
        return _Start()

    def step(self, state: _Start, event: Event) -> tuple[_Start, Sequence[Finding]]:
        body = event.body
        match body:
            case RecoveryStarted():
                return _Start(event.ref), NOTHING
            case RecoveryEnded():
                state.logs = body.logs
            case HeartbeatSent() if state.began is not None and state.logs < 0:
                if not state.settled:
                    state.settled = True
                    broken = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} registers while it still recovers its logs",
                        (state.began,),
                        process=process_scope(event.process),
                        broker=broker_of(body.broker_id),
                    )
                    return state, (broken,)
            case HeartbeatAnswered(request_epoch=-1, error="NONE") if not state.settled:
                state.settled = True
                if state.logs > 0:
                    return state, (Exercised(event.ref, Evidence.PEER),)
        return state, NOTHING

    def end(self, state: _Start, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
