"""A fault that interrupts a node for a moment, an event about it, and a promise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from fencepost import (
    NOTHING,
    Clause,
    Event,
    Evidence,
    Exercised,
    FaultFactory,
    Findings,
    Injected,
    Key,
    Receipt,
    Rule,
    RunEnd,
    Runtime,
    Signal,
    Undecided,
    UsageError,
    hookimpl,
    on,
)
from fencepost_kafka import HeartbeatSent


class Sneezed(Struct, frozen=True, tag="sneeze.sneezed"):
    """The fault stopped this node's process and resumed it."""

    node: str
    process: str


@dataclass(frozen=True, slots=True)
class Sneeze:
    """Stops a node's process, records that, and resumes it at once."""

    node: str
    name: str = "sneeze"

    def inject(self, runtime: Runtime) -> Injected:
        slot = runtime.layout.slot(self.node)
        process = runtime.living(slot)
        if process is None:
            raise UsageError(f"{self.node} is dead, and the dead do not sneeze")
        stopped = runtime.signal(process, Signal.STOP)
        runtime.record(Sneezed(self.node, process.name))
        runtime.signal(process, Signal.CONT)
        return Injected((process.name,), stopped, lambda: Receipt(True, "it was over at once"))

    def arguments(self) -> Mapping[str, object]:
        return {"node": self.node}


@dataclass(slots=True)
class Waiting:
    """Whether a process that sneezed has sent no heartbeat since."""

    waiting: bool = False


class GoesOn(Rule[Waiting]):
    """SNEEZE-1, keyed by process: a process that sneezed sends another heartbeat."""

    clause = "SNEEZE-1"
    state = Waiting

    @staticmethod
    def keys(event: Event) -> Iterable[Key]:
        body = event.body
        yield (body.process if isinstance(body, Sneezed) else event.process,)

    @on(Sneezed)
    def _sneezed(self, state: Waiting, event: Event, body: Sneezed) -> Findings:
        state.waiting = True
        return NOTHING

    @on(HeartbeatSent)
    def _goes_on(self, state: Waiting, event: Event, body: HeartbeatSent) -> Findings:
        found = (Exercised(event.ref, Evidence.SELF),) if state.waiting else NOTHING
        state.waiting = False
        return found

    def end(self, state: Waiting, end: RunEnd) -> Findings:
        return (Undecided("the run ended before the next heartbeat"),) if state.waiting else NOTHING


@hookimpl
def fencepost_event_kinds() -> Sequence[type[Struct]]:
    return [Sneezed]


@hookimpl
def fencepost_faults() -> Mapping[str, FaultFactory]:
    return {"sneeze": Sneeze}


@hookimpl
def fencepost_clauses() -> Sequence[Clause]:
    return [Clause("SNEEZE-1", "sneeze", (), "A node that sneezed goes on with its heartbeats.")]


@hookimpl
def fencepost_rules() -> Sequence[Rule[Any]]:
    return [GoesOn()]
