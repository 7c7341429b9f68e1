"""The history of a known finding, changed in one point of its cause.

Each change leaves the violations as they are. It takes away one point of the finding's trigger, or
of one of its marks: it is absent, too long ago, or about something else. Such a violation is new.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from fencepost import Administered, Event, FaultHealed, FaultInjected, KnownFinding, Mark, Trigger
from fencepost.events import FaultTookEffect
from fencepost.judging.event_formatter import sentence
from fencepost.judging.known_findings import Match, matched
from fencepost.model.clock import SECOND

HOUR_NS = 3_600 * SECOND
ELSEWHERE = ("broker-9#1", "controller-9#1")
Change = Callable[[Sequence[Event]], Sequence[Event]]


@dataclass(frozen=True, slots=True)
class Counter:
    """One change of a finding's history, and that finding without the point that it changes."""

    name: str
    change: Change
    without: KnownFinding


def counters(finding: KnownFinding) -> Iterator[Counter]:
    """Every change of a finding's history after which its violations are new."""
    trigger = finding.trigger
    if trigger is not None:
        by_anything = structs.replace(finding, trigger=None)
        for name, change in _of_trigger(trigger):
            yield Counter(f"{finding.id}: {name}", change, by_anything)
    for number, mark in enumerate(finding.marks):
        others = (*finding.marks[:number], *finding.marks[number + 1 :])
        # A finding has a cause: if nothing else is left, it is what every run has.
        left = others if others or trigger is not None else (Mark(kind="run.started"),)
        without = structs.replace(finding, marks=left)
        for name, change in _of_mark(finding, mark):
            yield Counter(f"{finding.id}: {mark.kind} {name}", change, without)


# ------------------------------------------------------------------------------------ the trigger


def _of_trigger(trigger: Trigger) -> Iterator[tuple[str, Change]]:
    yield "no trigger", _each(lambda event: None if is_trigger(event, trigger) else event)
    yield "another trigger", _triggers(trigger, _of_another_kind)
    yield "too long ago", lambda events: _long_ago(events, trigger)
    for name in trigger.arguments:
        yield f"another {name}", _triggers(trigger, partial(_other_argument, pattern=name))
    if trigger.fault:
        yield "no receipt", lambda events: _without_receipt(events, trigger)
        if ".+" not in trigger.at:
            yield "elsewhere", _triggers(trigger, _elsewhere)


def is_trigger(event: Event, trigger: Trigger) -> bool:
    """Whether an event is about a fault, or an operation, of the trigger's kind."""
    body = event.body
    if isinstance(body, FaultInjected):
        return bool(trigger.fault) and re.fullmatch(trigger.fault, body.fault) is not None
    if isinstance(body, Administered):
        return (
            bool(trigger.operation) and re.fullmatch(trigger.operation, body.operation) is not None
        )
    return False


def _each(change: Callable[[Event], Event | None]) -> Change:
    def changed(events: Sequence[Event]) -> Sequence[Event]:
        return [other for event in events if (other := change(event)) is not None]

    return changed


def _triggers(trigger: Trigger, change: Callable[[FaultInjected | Administered], Struct]) -> Change:
    def of(event: Event) -> Event:
        body = event.body
        if not isinstance(body, FaultInjected | Administered) or not is_trigger(event, trigger):
            return event
        return structs.replace(event, body=change(body))

    return _each(of)


def _of_another_kind(body: FaultInjected | Administered) -> Struct:
    if isinstance(body, FaultInjected):
        return structs.replace(body, fault="other")
    return structs.replace(body, operation="other")


def _elsewhere(body: FaultInjected | Administered) -> Struct:
    return structs.replace(body, targets=ELSEWHERE)


def _other_argument(body: FaultInjected | Administered, pattern: str) -> Struct:
    given = msgspec.json.decode(body.arguments) if body.arguments else {}
    others = {
        name: _other(value) if re.fullmatch(pattern, name) else value
        for name, value in given.items()
    }
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


def _without_receipt(events: Sequence[Event], trigger: Trigger) -> Sequence[Event]:
    ids = _faults(events, trigger)

    def of(event: Event) -> Event | None:
        match event.body:
            case FaultTookEffect(fault_id=one) if one in ids:
                return None
            case FaultInjected(fault_id=one) as body if one in ids:
                return structs.replace(event, body=structs.replace(body, receipt=False))
        return event

    return _each(of)(events)


def _long_ago(events: Sequence[Event], trigger: Trigger) -> Sequence[Event]:
    """The trigger began, and ended, an hour before everything else."""
    ids = _faults(events, trigger)

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
                yield structs.replace(event, at_ns=2) if is_trigger(event, trigger) else later

    return [other for event in events for other in of(event)]


def _faults(events: Sequence[Event], trigger: Trigger) -> set[str]:
    """The ids of the faults of a trigger's kind."""
    return {
        event.body.fault_id
        for event in events
        if isinstance(event.body, FaultInjected) and is_trigger(event, trigger)
    }


# --------------------------------------------------------------------------------------- the marks


class _Named(NamedTuple):
    """What the sentence, and the name of the process, of a mark's event match."""

    sentence: Match
    by: Match

    def text(self, name: str) -> str:
        return self.sentence.names.get(name) or self.by.names.get(name, "")


def _of_mark(finding: KnownFinding, mark: Mark) -> Iterator[tuple[str, Change]]:
    if mark.absent:
        yield "present", partial(_everywhere, mark)
        return
    yield "absent", _marks(mark, lambda event, named: None)
    if mark.within_ms:
        yield (
            "too long ago",
            _marks(mark, lambda event, named: structs.replace(event, at_ns=event.at_ns - HOUR_NS)),
        )
    shared = _shared(finding, mark)
    # Of several kinds of event, each may name something else, and any of them is enough.
    for names in [shared] if "|" in mark.kind and shared else [(name,) for name in shared]:
        yield (
            f"of another {' and '.join(names)}",
            _marks(mark, partial(_renamed, mark, names)),
        )
    if mark.there:
        yield "of another partition", _marks(mark, _of_another_topic)
    by_target = not mark.by and finding.trigger is not None and finding.trigger.fault
    if by_target:
        yield (
            "of another process",
            _marks(mark, lambda event, named: structs.replace(event, process=ELSEWHERE[0])),
        )


def _everywhere(mark: Mark, events: Sequence[Event]) -> Sequence[Event]:
    """Such an event as the mark says is absent comes beside each other event."""
    one = next(event for event in events if _match(mark, event) is not None)
    return [
        beside
        for number, event in enumerate(events)
        for beside in (structs.replace(one, at_ns=event.at_ns, node_seq=-number - 1), event)
    ]


def _shared(finding: KnownFinding, mark: Mark) -> Sequence[str]:
    """The names in a mark that the message gives, or another part of the cause."""
    own = _groups(f"{mark.sentence} {mark.by}")
    trigger = finding.trigger
    others = [one.sentence + one.by for one in finding.marks if one is not mark]
    elsewhere = _groups(
        " ".join((finding.message, str(trigger and (trigger.at, trigger.arguments)), *others))
    )
    return sorted((own & elsewhere) - {"low", "high"} | (own & {"process"}))


def _groups(pattern: str) -> set[str]:
    return set(re.findall(r"\(\?P<(\w+)>", pattern))


def _marks(mark: Mark, change: Callable[[Event, _Named], Event | None]) -> Change:
    def of(event: Event) -> Event | None:
        named = _match(mark, event)
        return event if named is None else change(event, named)

    return _each(of)


def _match(mark: Mark, event: Event) -> _Named | None:
    if re.fullmatch(mark.kind, event.kind) is None:
        return None
    said, by = matched(mark.sentence, sentence(event)), matched(mark.by or ".*", event.process)
    return None if said is None or by is None else _Named(said, by)


def _of_another_topic(event: Event, named: _Named) -> Event:
    topic = _other(getattr(event.body, "topic", ""))
    return structs.replace(event, body=structs.replace(event.body, topic=topic))


def _renamed(mark: Mark, names: Sequence[str], event: Event, named: _Named) -> Event:
    """The same event, in which other things have these names."""
    for name in names:
        event = _with_another(event, mark, name)
    return event


def _with_another(event: Event, mark: Mark, name: str) -> Event:
    was = _match(mark, event)
    if was is None or not was.text(name):
        return event
    if name in was.by.names:
        text = was.by.names[name]
        return structs.replace(event, process=event.process.replace(text, _other(text)))
    for field, value in structs.asdict(event.body).items():
        if isinstance(value, str | int):
            body = structs.replace(event.body, **{field: _other(value)})
            other = structs.replace(event, body=body)
            now = _match(mark, other)
            if now is None or now.text(name) != was.text(name):
                return other
    raise AssertionError(f"no field of {event.body} has the {name}")
