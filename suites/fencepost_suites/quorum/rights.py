"""Rights: requests that a client without rights may not make at a controller's own endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Findings,
    NodeStarted,
    ProcessSpawned,
    Rule,
    on,
    process_scope,
    slot_scope,
    violated,
)
from fencepost_kafka import ProbeCompleted, RequestRefused
from fencepost_suites.common.keys import by_slot_serving


@dataclass(slots=True)
class _Endpoint:
    """One slot: whether it runs a controller, and the clients that it refused because they lack
    rights."""

    controller: Cause | None = None
    refused: dict[str, int] = field(default_factory=dict)


@final
class ControllersWantRights(Rule[_Endpoint]):
    """QC-04. The client's evidence: its request at the controller's endpoint was refused, and the
    controller reports missing rights as the reason."""

    clause = "QC-04"
    keys = staticmethod(by_slot_serving)
    state = _Endpoint

    @on(ProcessSpawned, NodeStarted, RequestRefused, ProbeCompleted)
    def step(self, state: _Endpoint, event: Event, body: Struct) -> Findings:
        match body:
            case ProcessSpawned(role="controller") | NodeStarted(role="controller"):
                state.controller = event.ref
                state.refused.clear()
            case RequestRefused(reason="unauthorized"):
                state.refused[body.client] = event.at_ns
            case ProbeCompleted(api="CreateTopics") if state.controller is not None:
                if body.outcome == "answered":
                    because = (state.controller,)
                    broken = violated(
                        event.ref,
                        Evidence.CLIENT,
                        "{slot} did what {client}, which has no rights, asked of it at its "
                        "controller's endpoint",
                        because,
                        slot=slot_scope(body.slot),
                        client=process_scope(event.process),
                    )
                    return (broken,)
                if state.refused.get(event.process, -1) >= body.sent_at_ns:
                    return (Exercised(event.ref, Evidence.CLIENT),)
        return NOTHING
