"""The history of a known finding, changed in one point of its cause.

Each change leaves the violations as they are. It takes away one point of what the finding's
function asks for: a fault or an operation, or an event that the mechanism leaves. It is absent, too
long ago, or about something else. Such a violation is new.

What a function asks for is found by listening to it. `TRACES` say in which fields of an event it
must be about the same thing as the violation, or as another part of the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from fencepost import (
    Administered,
    Event,
    FaultHealed,
    FaultInjected,
    KnownFinding,
    NodeStarted,
    ProcessExited,
    Scene,
    Strike,
)
from fencepost.events import FaultTookEffect
from fencepost.model.clock import SECOND
from fencepost_clusters.apache_kafka.log_memory import ControllerFailed, IsrRequestForgotten
from fencepost_clusters.apache_kafka.metadata.misplaced import ReplicaMisplaced
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStopping,
    ConsumerPositioned,
    ControllerElected,
    ElectionStarted,
    FollowingStarted,
    HeartbeatAnswered,
    HeartbeatRefused,
    IsrChangeAsked,
    LeadershipStarted,
    LeaseExpired,
    LogAppended,
    MetadataCommitted,
    PartitionCommitted,
    QuorumLearned,
    TopicCommitted,
)

HOUR_NS = 3_600 * SECOND
ELSEWHERE = ("broker-9#1", "controller-9#1")
Change = Callable[[Sequence[Event]], Sequence[Event]]
PROCESS = "process"
"""The process that wrote an event, beside the fields of its body."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Events that a mechanism leaves: of some kinds, any of which is enough, and from processes
    whose name has a part (empty: any)."""

    kinds: tuple[type[Struct], ...]
    fields: tuple[str, ...] = ()
    by: str = ""

    def is_one(self, event: Event) -> bool:
        return type(event.body) in self.kinds and self.by in event.process


_DELETED = Trace((TopicCommitted,), ("topic_id", "topic"))
_REFUSED = (
    Trace((HeartbeatRefused,), (PROCESS,)),
    Trace((FollowingStarted,), ("topic", PROCESS)),
)
_SENT_BACK = (
    Trace((PartitionCommitted,), ("leader", "topic")),
    Trace((ConsumerPositioned,), ("refused_by", "topic", PROCESS)),
)
_LED = ("leader_epoch", "topic", PROCESS)
TRACES: Mapping[str, Sequence[Trace]] = {
    "refused-duplicate": (Trace((ReplicaMisplaced,), ("broker_id", "topic")),),
    "refused-duplicate-follows": (*_REFUSED, Trace((LogAppended,), ("topic", PROCESS))),
    "forgotten-isr-request": (Trace((IsrRequestForgotten,), ("joining", "topic")),),
    "no-heartbeat-no-fencing": (Trace((ControllerElected,)),),
    "superseded-broker-leads": (Trace((BrokerStateChanged,), (PROCESS,)),),
    "superseded-broker-stays-out": (
        Trace((LeadershipStarted,), _LED, by="-duplicate#"),
        Trace((LeadershipStarted,), _LED, by="broker-2#"),
    ),
    "no-broker-epochs": (Trace((NodeStarted,), (PROCESS,)),),
    "bounce-unseen": (Trace((ProcessExited,), ("ended",)),),
    "deposed-leader-refuses": _SENT_BACK,
    "deposed-leader-lacks-epoch": _SENT_BACK,
    "no-check-quorum": (Trace((ElectionStarted,)),),
    "isr-begins-epoch": (Trace((IsrChangeAsked, LeaseExpired, BrokerStopping)),),
    "no-pre-vote": (Trace((ElectionStarted,), (PROCESS,)),),
    "resigned-leader-acts": (
        Trace((ProcessExited,), ("ended",)),
        Trace((NodeStarted,), (PROCESS,)),
    ),
    "deleted-topic-keeps-settings": (Trace((TopicCommitted,), ("topic",)),),
    "config-clears-eligible-leaders": (Trace((MetadataCommitted,), ("offset",)),),
    "removed-replica-stays-eligible": (Trace((PartitionCommitted,), ("topic",)),),
    "cleared-leader-blocks-registration": (Trace((MetadataCommitted,)), _DELETED),
    "cleared-leader-keeps-broker-out": (
        Trace((MetadataCommitted,)),
        _DELETED,
        Trace((ControllerFailed,), ("error",)),
    ),
    "removed-voter-ends-leader": (Trace((QuorumLearned,), (PROCESS,)),),
    "refused-duplicate-counts": _REFUSED,
}
"""Finding -> what its mechanism leaves."""
ABSENT: Mapping[str, type[Struct]] = {"no-heartbeat-no-fencing": HeartbeatAnswered}
"""Finding -> the kind of event whose lack its mechanism leaves."""


# ------------------------------------------------------------------------- what a function asks for


@dataclass(slots=True)
class Asked:
    """What a finding's function has asked a scene for."""

    faults: set[str] = field(default_factory=set)
    operations: set[str] = field(default_factory=set)
    arguments: set[str] = field(default_factory=set)
    kinds: dict[type[Struct], int] = field(default_factory=dict)
    """kind of event -> how long ago it may be (0: any time)."""

    def listening(self, finding: KnownFinding) -> KnownFinding:
        """The same finding; what its function asks for is noted here."""
        return replace(finding, caused=lambda scene: finding.caused(_Listening(scene, self)))  # type: ignore[arg-type]

    def is_trigger(self, event: Event) -> bool:
        """Whether an event is about a fault, or an operation, that was asked for."""
        match event.body:
            case FaultInjected(fault=name):
                return name in self.faults
            case Administered(operation=name):
                return name in self.operations
        return False


class _Arguments(dict[str, Any]):
    """The arguments of a fault or an operation; a name that is asked for is noted."""

    def __init__(self, given: Mapping[str, Any], asked: Asked) -> None:
        super().__init__(given)
        self._asked = asked

    def get(self, name: str, default: Any = None) -> Any:
        self._asked.arguments.add(name)
        return super().get(name, default)


class _Listening:
    """A scene that notes what it is asked for."""

    def __init__(self, scene: Scene, asked: Asked) -> None:
        self._scene = scene
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scene, name)

    def faults(self, *names: str, within_ms: int = 0) -> Iterator[Strike]:
        self._asked.faults.update(names)
        yield from map(self._heard, self._scene.faults(*names, within_ms=within_ms))

    def operations(self, *names: str, within_ms: int) -> Iterator[Strike]:
        self._asked.operations.update(names)
        yield from map(self._heard, self._scene.operations(*names, within_ms=within_ms))

    def _heard(self, strike: Strike) -> Strike:
        return replace(strike, arguments=_Arguments(strike.arguments, self._asked))

    def traces(
        self, kind: type[Struct], *, within_ms: int = 0, since: Strike | None = None
    ) -> Iterator[tuple[Event, Struct]]:
        self._asked.kinds[kind] = within_ms
        yield from self._scene.traces(kind, within_ms=within_ms, since=since)


# ------------------------------------------------------------------------------------- the changes


def counters(finding: KnownFinding, asked: Asked) -> Iterator[tuple[str, Change]]:
    """Every change of a finding's history after which its violations are new."""
    if asked.faults or asked.operations:
        yield from _of_trigger(asked)
    if finding.id in ABSENT:
        yield "present", partial(_everywhere, ABSENT[finding.id])
    for trace in TRACES[finding.id]:
        for name, change in _of_trace(trace, asked):
            yield f"{' or '.join(kind.__name__ for kind in trace.kinds)} {name}", change


def _of_trigger(asked: Asked) -> Iterator[tuple[str, Change]]:
    yield "no trigger", _each(lambda event: None if asked.is_trigger(event) else event)
    yield "another trigger", _triggers(asked, _of_another_kind)
    yield "too long ago", partial(_long_ago, asked)
    for name in sorted(asked.arguments):
        yield f"another {name}", _triggers(asked, partial(_other_argument, name=name))
    if asked.faults:
        yield "no receipt", partial(_without_receipt, asked)
        yield "elsewhere", _triggers(asked, _elsewhere)


def _of_trace(trace: Trace, asked: Asked) -> Iterator[tuple[str, Change]]:
    yield "absent", _traces(trace, lambda event: None)
    if any(asked.kinds[kind] for kind in trace.kinds if kind in asked.kinds):
        yield "too long ago", _traces(trace, _an_hour_before)
    for name in trace.fields:
        yield f"of another {name}", _traces(trace, partial(_of_another, name=name))


def _each(change: Callable[[Event], Event | None]) -> Change:
    def changed(events: Sequence[Event]) -> Sequence[Event]:
        return [other for event in events if (other := change(event)) is not None]

    return changed


def _triggers(asked: Asked, change: Callable[[FaultInjected | Administered], Struct]) -> Change:
    def of(event: Event) -> Event:
        body = event.body
        if not isinstance(body, FaultInjected | Administered) or not asked.is_trigger(event):
            return event
        return structs.replace(event, body=change(body))

    return _each(of)


def _traces(trace: Trace, change: Callable[[Event], Event | None]) -> Change:
    return _each(lambda event: change(event) if trace.is_one(event) else event)


def _an_hour_before(event: Event) -> Event:
    return structs.replace(event, at_ns=event.at_ns - HOUR_NS)


def _of_another(event: Event, name: str) -> Event:
    if name == PROCESS:
        slot, _, number = event.process.partition("#")
        return structs.replace(event, process=f"{_other(slot)}#{number}")
    body = structs.replace(event.body, **{name: _other(getattr(event.body, name))})
    return structs.replace(event, body=body)


def _everywhere(kind: type[Struct], events: Sequence[Event]) -> Sequence[Event]:
    """Such an event comes beside each other event."""
    one = next(event for event in events if isinstance(event.body, kind))
    return [
        beside
        for number, event in enumerate(events)
        for beside in (structs.replace(one, at_ns=event.at_ns, node_seq=-number - 1), event)
    ]


def _of_another_kind(body: FaultInjected | Administered) -> Struct:
    if isinstance(body, FaultInjected):
        return structs.replace(body, fault="other")
    return structs.replace(body, operation="other")


def _elsewhere(body: FaultInjected | Administered) -> Struct:
    return structs.replace(body, targets=ELSEWHERE)


def _other_argument(body: FaultInjected | Administered, name: str) -> Struct:
    given = msgspec.json.decode(body.arguments) if body.arguments else {}
    others = {key: _other(value) if key == name else value for key, value in given.items()}
    return structs.replace(body, arguments=msgspec.json.encode(others).decode())


def _other(value: Any) -> Any:
    """Something else of the same type; of a table, another name in it."""
    match value:
        case bool():
            return not value
        case int():
            return value + 90
        case str():
            return re.sub(r"\d", "7", value) if re.search(r"[0-689]", value) else f"{value}7"
        case Mapping():
            return {_other(name): one for name, one in value.items()}
    return value


def _without_receipt(asked: Asked, events: Sequence[Event]) -> Sequence[Event]:
    ids = _faults(events, asked)

    def of(event: Event) -> Event | None:
        match event.body:
            case FaultTookEffect(fault_id=one) if one in ids:
                return None
            case FaultInjected(fault_id=one) as body if one in ids:
                return structs.replace(event, body=structs.replace(body, receipt=False))
        return event

    return _each(of)(events)


def _long_ago(asked: Asked, events: Sequence[Event]) -> Sequence[Event]:
    """The trigger began, and ended, an hour before everything else."""
    ids = _faults(events, asked)

    def of(event: Event) -> Iterator[Event]:
        later = structs.replace(event, at_ns=event.at_ns + HOUR_NS)
        match event.body:
            case FaultInjected(fault_id=one) as body if one in ids:
                yield structs.replace(later, body=structs.replace(body, began_at_ns=1))
                healed = FaultHealed(fault_id=one, receipt=True, evidence="")
                yield structs.replace(event, at_ns=2, node_seq=-event.node_seq, body=healed)
            case FaultHealed(fault_id=one) as body if one in ids:
                # Some violations are found at this event.
                yield structs.replace(later, body=structs.replace(body, fault_id="other"))
            case _:
                yield structs.replace(event, at_ns=2) if asked.is_trigger(event) else later

    return [other for event in events for other in of(event)]


def _faults(events: Sequence[Event], asked: Asked) -> set[str]:
    """The ids of the faults that were asked for."""
    return {
        event.body.fault_id
        for event in events
        if isinstance(event.body, FaultInjected) and asked.is_trigger(event)
    }
