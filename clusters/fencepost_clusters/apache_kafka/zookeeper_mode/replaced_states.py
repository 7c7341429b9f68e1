"""States of partitions that were replaced before the observer read them, from ZooKeeper's disks.

The observer knows by a znode's version how many states it did not read. A server's transaction log
has all of them. Those that fill a gap without a remainder are supplied, so that the history has
every state of that partition; any other gap stays open.

See docs/decisions/06-missed-evidence.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from fencepost import MS, Event, EvidenceMissed, EvidenceSupplied, Supplied
from fencepost_clusters.apache_kafka.zookeeper_mode.znodes import (
    Assignment,
    State,
    committed,
    state_path,
    topic_path,
)
from fencepost_clusters.zookeeper.transactions import Change
from fencepost_kafka import PartitionCommitted


@dataclass(frozen=True, slots=True)
class _Gap:
    """`after` is the observer's first state after the gap. It read the one before at
    `from_ns`."""

    missed: Event
    after: PartitionCommitted
    from_ns: int


def supplied(
    events: Iterable[Event],
    changes: Iterable[Change],
    chroot: str,
    from_wall_ns: Callable[[int], int],
) -> Sequence[Supplied]:
    """The missing states, in the order of their times, each gap followed by its EvidenceSupplied.

    `events` are those of the run in order, and `changes` those of all servers' logs. A state is
    placed at the time of its transaction, between the two that the observer read. The state after
    the gap is repeated, now as one that follows the state before it.
    """
    logs = _by_path(changes)
    found: list[Supplied] = []
    for gap in _gaps(events):
        path = state_path(gap.after.topic, gap.after.partition)
        states = _filling(gap, logs.get(chroot + path, ()))
        assignments = logs.get(chroot + topic_path(gap.after.topic), ())
        bodies = [_committed(gap, one, assignments) for one in states]
        if not bodies or None in bodies:
            continue
        last_ns, at_ns = gap.missed.at_ns - 1, gap.from_ns
        for change, body in zip(states, bodies, strict=True):
            assert body is not None
            # A transaction has its time in whole milliseconds, and takes effect later.
            at_ns = min(max(at_ns, from_wall_ns(change.at_ns + MS)), last_ns)
            found.append(Supplied(at_ns, body))
        found.append(Supplied(last_ns, replace(gap.after, skipped=0)))
        what = f"{len(bodies)} states of {gap.after.topic}-{gap.after.partition}"
        news = EvidenceSupplied(what=f"{what} from ZooKeeper's transaction log")
        found.append(Supplied(gap.missed.at_ns, news, gap.missed.ref))
    return sorted(found, key=lambda one: one.at_ns)


def _by_path(changes: Iterable[Change]) -> Mapping[str, Sequence[Change]]:
    """The changes of each znode by their zxid; several servers may have logged the same one."""
    by_path: dict[str, set[Change]] = {}
    for change in changes:
        by_path.setdefault(change.path, set()).add(change)
    return {path: _not_replaced(sorted(found)) for path, found in by_path.items()}


def _not_replaced(states: Sequence[Change]) -> Sequence[Change]:
    """The changes of one znode without those that a later leader of the ensemble did not have.

    A server that was cut off may have logged a transaction that was never committed. A leader has
    every committed transaction, so a change of version v was made to version v - 1: what was
    logged between the two was never committed. A version of 0 says nothing, since the znode may
    have been deleted and created again.
    """
    kept: list[Change] = []
    for change in states:
        while kept and 0 < change.version <= kept[-1].version:
            kept.pop()
        kept.append(change)
    return kept


def _gaps(events: Iterable[Event]) -> Iterable[_Gap]:
    """Each gap that the observer found: it records it just before the state that it then read."""
    missed: dict[str, Event] = {}
    read_ns: dict[tuple[str, int], int] = {}
    for event in events:
        match event.body:
            case EvidenceMissed():
                missed[event.process] = event
            case PartitionCommitted() as body:
                place = body.topic, body.partition
                if body.skipped and event.process in missed:
                    yield _Gap(missed.pop(event.process), body, read_ns.get(place, 0))
                read_ns[place] = event.at_ns
            case _:
                pass


def _filling(gap: _Gap, states: Sequence[Change]) -> Sequence[Change]:
    """The changes that fill a gap, none if they do not fill it."""
    last = next((n for n, one in enumerate(states) if one.zxid == gap.after.offset), -1)
    first = last - gap.after.skipped
    if last < 0 or first < 0:
        return ()
    version = states[last].version - gap.after.skipped
    # The change before is the one that the observer has read, unless the znode was created since.
    whole = states[max(0, first - 1) if version else first : last + 1]
    versions = [one.version for one in whole]
    if versions != list(range(versions[0], versions[0] + len(versions))):
        return ()
    return states[first:last]


def _committed(
    gap: _Gap, change: Change, assignments: Sequence[Change]
) -> PartitionCommitted | None:
    """The state that a change stored, with the assignment at that time; None if either cannot be
    read."""
    newest = [one for one in assignments if one.zxid <= change.zxid]
    if not newest:
        return None
    try:
        state = msgspec.json.decode(change.data, type=State)
        known = msgspec.json.decode(newest[-1].data, type=Assignment)
    except (ValueError, msgspec.DecodeError):
        return None  # written by another process than a broker
    return committed(change.zxid, gap.after.topic, gap.after.partition, state, known)
