"""Changes a history at random, and cuts it to what concerns one key.

Pure: all chance comes from the stream that is passed in. What the harness wrote is changed only for
the promises that it judges itself (`OF_HARNESS`): for all others it is the frame of the run, and no
node can alter it. Events keep the order of their processes, and
causes come first (`fencepost.history.merge.in_order`); numbers are given anew, so that an event
that is dropped never was, and the history looks whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import Any

from msgspec import Struct, structs

from fencepost import Cause, Event
from fencepost.events.names import is_client
from fencepost.history.merge import Written, in_order
from fencepost.history.run_end import HARNESS
from second_readings.reading import History

MOST_EVENTS = 300
MOST_FROM_BEGIN = 700
RARE = 20
"""Of a kind, so many events are kept as they are: they are states and turns, not traffic."""
MS = 1_000_000
Key = tuple[str, object]
"""The name of a field, and the value that an event has there, if it has the field at all."""


def keys_of(history: History, fields: Sequence[str]) -> Sequence[tuple[Key, ...]]:
    """The keys that a history may be cut to: the values of these fields in its events."""
    found = {
        tuple((name, getattr(event.body, name)) for name in fields)
        for event in history.events
        if all(name in event.body.__struct_fields__ for name in fields)
    }
    return sorted(found, key=str)


def cut(
    history: History,
    kinds: Collection[type[Struct]],
    key: Sequence[Key],
    random: Random,
    window: bool = True,
    most: int = MOST_FROM_BEGIN,
) -> History:
    """The events of these kinds that concern the key, and at most MOST_EVENTS of them.

    Either the first `most` of them, of a run that was cut short then; or, where readings
    need no begin, at most MOST_EVENTS: what the harness and final readings say, the kinds of which
    there are few, and a stretch of the rest.
    """

    def concerns(event: Event) -> bool:
        known = all(getattr(event.body, name, value) == value for name, value in key)
        return type(event.body) in kinds and known

    events = [event for event in history.events if concerns(event)]
    if not window:
        whole = len(events) <= most
        return with_events(history, events[:most], history.end.complete and whole)
    counts = Counter(type(event.body) for event in events)
    pinned = [counts[type(event.body)] <= RARE or _pinned(event) for event in events]
    room = max(MOST_EVENTS - sum(pinned), MOST_EVENTS // 3)
    loose = len(events) - sum(pinned)
    first = 0 if random.random() < 0.5 else random.randrange(max(1, loose - room + 1))
    kept, place = [], 0
    for event, fixed in zip(events, pinned, strict=True):
        if fixed or first <= place < first + room:
            kept.append(event)
        place += not fixed
    return with_events(history, kept)


def _pinned(event: Event) -> bool:
    final = getattr(event.body, "final", False)
    return event.process == HARNESS or final or event.kind == "client.read_completed"


def with_events(history: History, events: Sequence[Event], complete: bool = True) -> History:
    """The history with other events; if it is not complete, it was cut short after the last."""
    end = history.end
    last_ns = max((event.at_ns for event in events), default=end.began_at_ns)
    end = replace(end, ended_at_ns=max(last_ns, end.ended_at_ns))
    if not complete:
        end = replace(end, complete=False, ended_at_ns=last_ns, cut_short_by="a cut")
    return History(tuple(events), end, history.plane)


ANSWERED = frozenset(
    {
        *("outcome", "offset", "offsets", "operations", "start", "end", "error"),
        *("revision", "mod_revision", "version", "value", "term", "token", "newer_token"),
        *("holder_token", "ttl_s", "records", "brokers", "base_offset", "details"),
    }
)
"""What a client records of answers. The rest is its own: which message it sent, and how."""


def own_books(event: Event) -> bool:
    """Whether a client records what it did itself. Clients belong to the harness: what they are
    answered may be anything, but none sends a message after it was acknowledged."""
    return is_client(event.process) and event.kind.endswith(("_invoked", "_completed"))


def sends(event: Event) -> bool:
    """Whether a client records what it sends: it does so before anybody can answer."""
    return is_client(event.process) and event.kind.endswith("_invoked")


def may_differ(event: Event, field: str) -> bool:
    """Whether the system could have made another value of a field."""
    if not is_client(event.process):
        return True
    return field in ANSWERED and not event.kind.endswith("_invoked")


Change = Callable[[list[Event], Random], None]
"""Changes the events of a history in place; those of the harness are not among them."""


def _dropped(events: list[Event], random: Random) -> None:
    """Some events are lost, anywhere."""
    for _ in range(random.choice((1, 1, 2, 4))):
        place = random.randrange(len(events))
        if not sends(events[place]) and len(events) > 1:
            del events[place]


def _withheld(events: list[Event], random: Random) -> None:
    """A process never says one kind of thing, or says it only until some time."""
    one = random.choice(events)
    from_ns = one.at_ns if random.random() < 0.5 else 0
    events[:] = [
        event
        for event in events
        if not (
            event.process == one.process
            and type(event.body) is type(one.body)
            and event.at_ns >= from_ns
            and not sends(event)
        )
    ]


def _delayed(events: list[Event], random: Random) -> None:
    """A process does, from some time on, everything later."""
    one = random.choice(events)
    by_ns = random.choice((1, 5, 50, 500, 5_000, 20_000)) * MS
    for place, event in enumerate(events):
        if event.process == one.process and event.at_ns >= one.at_ns:
            events[place] = structs.replace(event, at_ns=event.at_ns + by_ns)


def _swapped(events: list[Event], random: Random) -> None:
    """Two events of one process change places: what they say, not when."""
    one = random.choice(events)
    own = [
        place
        for place, event in enumerate(events)
        if event.process == one.process and not own_books(event)
    ]
    if not own:
        return
    first, second = random.choice(own), random.choice(own)
    a, b = events[first], events[second]
    events[first] = structs.replace(a, body=b.body)
    events[second] = structs.replace(b, body=a.body)


def _repeated(events: list[Event], random: Random) -> None:
    """An event comes twice, the second time later."""
    one = random.choice(events)
    if own_books(one):
        return
    again = structs.replace(one, at_ns=one.at_ns + random.choice((1, 100, 3_000)) * MS)
    events.append(again)


def _altered(events: list[Event], random: Random) -> None:
    """One event has another value in one field."""
    place = random.randrange(len(events))
    event = events[place]
    name, value = other_value(events, event, random)
    if name:
        events[place] = structs.replace(event, body=structs.replace(event.body, **{name: value}))


def _altered_together(events: list[Event], random: Random) -> None:
    """Several processes, or one, say consistently another value in place of one of a field."""
    one = random.choice(events)
    name, value = other_value(events, one, random)
    if not name:
        return
    was, liars = getattr(one.body, name), {one.process}
    if random.random() < 0.7:
        liars |= {event.process for event in events if random.random() < 0.5}
    for place, event in enumerate(events):
        lies = event.process in liars and may_differ(event, name)
        if lies and getattr(event.body, name, None) == was:
            body = structs.replace(event.body, **{name: value})
            events[place] = structs.replace(event, body=body)


def other_value(events: Sequence[Event], event: Event, random: Random) -> tuple[str, Any]:
    """A field of an event, and another value for it: one of its neighbourhood, or one that another
    event of its kind has there."""
    names = [one for one in event.body.__struct_fields__ if may_differ(event, one)]
    name = names[random.randrange(len(names))] if names else ""
    if not name:
        return "", None
    was = getattr(event.body, name)
    elsewhere = [
        getattr(other.body, name) for other in events if type(other.body) is type(event.body)
    ]
    choices = [random.choice(elsewhere)]
    # Before int, since a bool is one.
    if isinstance(was, bool):
        choices = [not was]
    elif isinstance(was, int):
        choices += [was + 1, max(-1, was - 1)]
    elif isinstance(was, tuple) and was:
        choices += [was[:-1], was[1:]]
    value = random.choice(choices)
    # What comes in pairs stays in pairs, as it is of one list in the wire format.
    if isinstance(was, tuple) and len(value) != len(was) and _paired(event, name):
        return "", None
    return ("", None) if value == was else (name, value)


def _paired(event: Event, name: str) -> bool:
    """Whether another tuple of the event has as many elements, as it does by its kind."""
    size = len(getattr(event.body, name))
    return any(
        isinstance(value := getattr(event.body, other), tuple) and len(value) == size
        for other in event.body.__struct_fields__
        if other != name
    )


CHANGES: tuple[Change, ...] = (
    *(_dropped, _withheld, _delayed, _swapped, _repeated),
    *(_altered, _altered, _altered, _altered_together, _altered_together),
)


def _without_faults(events: list[Event], random: Random) -> None:
    """The faults are not told: what they did has no excuse."""
    events[:] = [event for event in events if not event.kind.startswith("fault.")]


def _tighter(events: list[Event], random: Random) -> None:
    """The stated bounds are shorter, so more exceeds them."""
    by = random.choice((3, 10, 30))
    for place, event in enumerate(events):
        if event.kind == "cluster.bounds":
            times = {
                name: getattr(event.body, name) // by
                for name in event.body.__struct_fields__
                if name.endswith("_ms")
            }
            events[place] = structs.replace(event, body=structs.replace(event.body, **times))


def _unexpected(events: list[Event], random: Random) -> None:
    """An end that the run had caused was not, or the cluster did not recover."""
    for place, event in enumerate(events):
        names = event.body.__struct_fields__
        for name in ("expected", "recovered"):
            if name in names and random.random() < 0.2:
                body = structs.replace(event.body, **{name: not getattr(event.body, name)})
                events[place] = structs.replace(event, body=body)


def _late_end(events: list[Event], random: Random) -> None:
    """A process ends later than it did."""
    ends = [place for place, event in enumerate(events) if event.kind == "process.exited"]
    if ends:
        place = random.choice(ends)
        later_ns = events[place].at_ns + random.choice((5_000, 25_000)) * MS
        events[place] = structs.replace(events[place], at_ns=later_ns)


OF_HARNESS: tuple[Change, ...] = (_without_faults, _tighter, _unexpected, _late_end)
"""Changes of what the harness says, for promises that it judges itself."""


def changed(history: History, random: Random, of_harness: bool = False) -> History:
    """The history with none to three changes at random, and perhaps without its end."""
    fixed = [event for event in history.events if event.process == HARNESS]
    events = [event for event in history.events if event.process != HARNESS]
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        if events:
            random.choice(CHANGES)(events, random)
    for change in OF_HARNESS if of_harness else ():
        if random.random() < 0.4:
            change(fixed, random)
    complete = True
    if random.random() < 0.1:
        complete = False
        until_ns = random.choice(events).at_ns if events else 0
        events = [event for event in events if event.at_ns <= until_ns]
        fixed = [event for event in fixed if event.at_ns <= until_ns]
    return with_events(history, ordered([*events, *fixed]), complete)


def ordered(events: Sequence[Event]) -> Sequence[Event]:
    """The events in happens-before order, numbered anew; causes that are gone are left out."""
    processes: dict[str, list[Event]] = {}
    for event in events:
        processes.setdefault(event.process, []).append(event)
    number: dict[Cause, Cause] = {}
    for process, own in processes.items():
        own.sort(key=lambda event: event.at_ns)
        for seq, event in enumerate(own):
            number.setdefault(Cause(process, event.node_seq), Cause(process, seq))
    sources = []
    for own in processes.values():
        source = []
        for seq, event in enumerate(own):
            cause = event.cause
            if cause is not None and not cause.request:
                cause = number.get(Cause(cause.process, cause.seq))
            source.append(Written(structs.replace(event, node_seq=seq, cause=cause), b""))
        sources.append(iter(source))
    return [event for event, _ in in_order(sources)]
