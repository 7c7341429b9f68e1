"""What can happen in any run: one envelope round all events, and the kinds that every run has.

An `Event` is the envelope; its `body` says what happened. Every body is frozen, tagged with its
`type`, and flat: text, numbers, truth values and tuples of them, so that the NDJSON line, the flat
row, the Spark schema and the documentation page are projections of these classes only. A system's
kinds, tagged `plugin.name`, come from plugins (`fencepost_event_kinds`), and say by
`fencepost.events.traits` what the framework may know of them.

Rules of the schema:

* A node writes an event before the effect it describes (before the answer leaves, before the record
  is served), one write each. `node_seq` counts from 0 without a gap within one process.
* `at_ns` is the host's CLOCK_MONOTONIC, which no fault touches. What the node believed the time to
  be is a field of the body, named `*_ms`, and is never compared with `at_ns`.
* `cause` names one earlier event or one request; nearness in time is never a cause.
* Process names are `<slot>#<n>` (`broker-2#3`), clients `clients/<name>#<n>`, and `harness` for the
  harness itself. A request is named by the process that sent it and that process's correlation
  counter.
"""

from __future__ import annotations

from fencepost.events.apps import AppReady, AppStarted, AppWorksAgain, CheckJudged
from fencepost.events.codec import KINDS, SCHEMA_VERSION, Codec, nested_fields
from fencepost.events.effects import Effect
from fencepost.events.envelope import Cause, Event, Unrecognised, kind_name
from fencepost.events.processes import (
    ClientFailed,
    ClientStarted,
    ConnectionClosed,
    NodeStarted,
    NodeStopped,
    ProcessAsked,
    ProcessExited,
    ProcessLeft,
    ProcessResumed,
    ProcessSpawned,
    Stalled,
)
from fencepost.events.run import (
    Administered,
    ClusterRecovered,
    EvidenceMissed,
    EvidenceSupplied,
    FaultHealed,
    FaultInjected,
    FaultIntended,
    FaultTookEffect,
    LinkFailed,
    PhaseStarted,
    PromiseObserved,
    RunEnded,
    RunStarted,
    TestEnded,
    TestStarted,
    began_ns,
)

__all__ = [
    "KINDS",
    "SCHEMA_VERSION",
    "Administered",
    "AppReady",
    "AppStarted",
    "AppWorksAgain",
    "Cause",
    "CheckJudged",
    "ClientFailed",
    "ClientStarted",
    "ClusterRecovered",
    "Codec",
    "ConnectionClosed",
    "Effect",
    "Event",
    "EvidenceMissed",
    "EvidenceSupplied",
    "FaultHealed",
    "FaultInjected",
    "FaultIntended",
    "FaultTookEffect",
    "LinkFailed",
    "NodeStarted",
    "NodeStopped",
    "PhaseStarted",
    "ProcessAsked",
    "ProcessExited",
    "ProcessLeft",
    "ProcessResumed",
    "ProcessSpawned",
    "PromiseObserved",
    "RunEnded",
    "RunStarted",
    "Stalled",
    "TestEnded",
    "TestStarted",
    "Unrecognised",
    "began_ns",
    "kind_name",
    "nested_fields",
]
