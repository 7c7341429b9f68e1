"""Why a promise was broken: the epoch and fencing events that led to it, in at most twelve lines.

The chain is found by happens-before, never by nearness in time: events of one process in their
order, causes, requests, and the replaying of one committed record by several nodes. Of that past,
what is told is what changed authority over the broker, partition or epoch of the broken promise,
and the faults that named its slot as their target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fencepost import events as e
from fencepost.judge import Broken
from fencepost.rules import Witness

LINES_MOST = 12
_WORD = {
    Witness.CLIENT: "as a client saw it",
    Witness.PEER: "as a peer was told",
    Witness.SELF: "by the node's own word",
}
_LAST_ONLY = (e.LeaseGranted, e.HeartbeatRefused, e.LeadershipStarted, e.PartitionCommitted)
"""Kinds that come in rows, of which only the newest of a process says anything."""


def explain(clause: str, says: str, broken: Broken, history: Sequence[e.Event]) -> tuple[str, ...]:
    """The clause, its sentence, the offending event, and the chain that led to it, oldest first.

    `history` holds the run's events in happens-before order; a line is one element.
    """
    head = [f"{clause} is violated: {says}"]
    index = next((i for i, x in enumerate(history) if x.ref == broken.at), None)
    if index is None:
        return (*head, f"  {broken.at}: {broken.saying}")
    offending, origin_ns = history[index], history[0].at_ns
    head.append(f"  {broken.saying}")
    head.append(f"  the event, {_WORD[broken.witness]}:")
    head.append(f"    {_stamp(offending, origin_ns)}  {sentence(offending)}")
    named = [x for x in history[:index] if x.ref in broken.because]
    chain = _chain(offending, named, history[:index])
    room = LINES_MOST - len(head) - 1
    if not chain:
        return tuple(head)
    lines = [f"    {_stamp(x, origin_ns)}  {sentence(x)}" for x in _least(chain, named, room)]
    return (*head, "  what led to it:", *lines)


def _stamp(event: e.Event, origin_ns: int) -> str:
    return f"{(event.at_ns - origin_ns) / 1e9:8.3f} s  {event.process}"


# ------------------------------------------------------------------------------ the chain


def _chain(
    offending: e.Event, named: Sequence[e.Event], before: Sequence[e.Event]
) -> list[e.Event]:
    """The authority events of the past that concern the same things, oldest first."""
    things = _things(offending)
    for event in named:
        things |= _things(event)
    past = _past([offending, *named], before)
    chosen: list[e.Event] = []
    told: set[tuple[str, int]] = set()
    for event in before:
        body: Any = event.body
        if isinstance(body, e.FaultStruck | e.FaultHealed):
            if isinstance(body, e.FaultHealed) or _struck(body) & things:
                chosen.append(event)
        elif event.ref in past and _concerns(event, things):
            if isinstance(body, _RECORDS):
                if (event.kind, body.offset) in told:
                    continue
                told.add((event.kind, body.offset))
            chosen.append(event)
    return _without_rows(_faults_that_matter(chosen))


def _concerns(event: e.Event, things: set[str]) -> bool:
    """Whether an event changed authority over one of these things."""
    body: Any = event.body
    if isinstance(body, _OF_PARTITION):
        return f"{body.topic}-{body.partition}" in things
    if isinstance(body, e.BrokerCommitted):  # about that broker, whoever replays it
        return f"broker-{body.broker_id}" in things
    return type(body) in _AUTHORITY and bool(_things(event) & things)


def _past(of: Iterable[e.Event], before: Sequence[e.Event]) -> set[e.Cause]:
    """What happened before these events: by process order, causes, requests and records."""
    reach: dict[str, int] = {}
    requests: set[tuple[str, int]] = set()
    offsets: set[tuple[str, int]] = set()
    found: set[e.Cause] = set()

    def take(event: e.Event) -> None:
        reach[event.process] = max(event.node_seq, reach.get(event.process, -1))
        cause = event.cause
        if cause is not None and cause.request:
            requests.add((cause.process, cause.seq))
        elif cause is not None:
            reach[cause.process] = max(cause.seq, reach.get(cause.process, -1))
        if isinstance(event.body, _RECORDS):
            offsets.add((event.kind, event.body.offset))

    for event in of:
        take(event)
    for event in reversed(before):
        body = event.body
        if (
            event.node_seq <= reach.get(event.process, -1)
            or (isinstance(body, _RECORDS) and (event.kind, body.offset) in offsets)
            or (isinstance(body, e.HeartbeatSent) and (event.process, body.correlation) in requests)
        ):
            found.add(event.ref)
            take(event)
    return found


def _things(event: e.Event) -> set[str]:
    """What an event is about: slots, brokers, partitions, and the metadata quorum as a whole."""
    body: Any = event.body
    found = {event.process.partition("#")[0]}
    for name in ("client", "slot", "ended", "started"):
        value = getattr(body, name, "")
        if value and not value.startswith("clients"):
            found.add(value.partition("#")[0])
    broker: int = getattr(body, "broker_id", getattr(body, "broker", -1))
    if broker >= 0:
        found |= {f"broker-{broker}", f"broker-{broker}-twin"}
    topic = getattr(body, "topic", "")
    if topic and getattr(body, "partition", -1) >= 0:
        found.add(f"{topic}-{body.partition}")
    if isinstance(body, _QUORUM):
        found.add("the quorum")
    return found - {"harness"}


def _struck(body: e.FaultStruck) -> set[str]:
    return {target.partition("#")[0] for target in body.targets}


def _faults_that_matter(chosen: list[e.Event]) -> list[e.Event]:
    """Heals only of faults that are told, and only the newest fault of those long over."""
    struck = {x.body.fault_id for x in chosen if isinstance(x.body, e.FaultStruck)}
    kept = [x for x in chosen if not isinstance(x.body, e.FaultHealed) or x.body.fault_id in struck]
    healed = {x.body.fault_id for x in kept if isinstance(x.body, e.FaultHealed)}
    open_faults = struck - healed
    if not open_faults:
        newest = [x.body.fault_id for x in kept if isinstance(x.body, e.FaultStruck)][-1:]
        open_faults = set(newest)
    return [
        x
        for x in kept
        if not isinstance(x.body, e.FaultStruck | e.FaultHealed) or x.body.fault_id in open_faults
    ]


def _without_rows(chain: list[e.Event]) -> list[e.Event]:
    """Of kinds that come in rows, the newest one of each process and subject."""
    newest: dict[tuple[str, str, frozenset[str]], e.Cause] = {}
    for event in chain:
        if isinstance(event.body, _LAST_ONLY):
            newest[event.process, event.kind, frozenset(_things(event))] = event.ref
    kept = set(newest.values())
    return [x for x in chain if not isinstance(x.body, _LAST_ONLY) or x.ref in kept]


def _least(chain: list[e.Event], named: Sequence[e.Event], room: int) -> list[e.Event]:
    """As many as there is room for: those the rule named, faults, then the newest."""
    if len(chain) <= room:
        return chain
    must = {x.ref for x in named} | {x.ref for x in chain if isinstance(x.body, e.FaultStruck)}
    first = [x for x in chain if x.ref in must][-room:]
    rest = [x for x in chain if x.ref not in must]
    kept = {x.ref for x in first} | {x.ref for x in rest[max(0, len(rest) - room + len(first)) :]}
    return [x for x in chain if x.ref in kept][-room:]


_RECORDS = (e.MetadataCommitted, e.BrokerCommitted, e.PartitionCommitted, e.TopicCommitted)
_OF_PARTITION = (e.PartitionCommitted, e.LeadershipStarted, e.LeadershipEnded, e.LogTruncated)
_QUORUM = (e.ElectionStarted, e.VoteAnswered, e.ControllerElected, e.ControllerResigned)
_AUTHORITY = frozenset(
    {
        e.ControllerElected,
        e.ControllerResigned,
        e.StateReverted,
        e.MetadataTruncated,
        e.BrokerCommitted,
        e.LeaseGranted,
        e.LeaseExpired,
        e.HeartbeatRefused,
        e.BrokerStateChanged,
        e.ProcessSpawned,
        e.ProcessExited,
    }
)

# ------------------------------------------------------------------------------ in words


def sentence(event: e.Event) -> str:
    """One event in words, without its time and process."""
    body: Any = event.body
    words = _SENTENCES.get(type(body))
    if words is not None:
        targets = ", ".join(getattr(body, "targets", ()))
        return words.format(b=body, isr=list(getattr(body, "isr", ())), targets=targets)
    shown = [
        f"{name} {getattr(body, name)}"
        for name in body.__struct_fields__
        if getattr(body, name) not in ("", -1, (), None)
    ]
    return f"{event.kind}: {', '.join(shown[:6])}"


_SENTENCES: dict[type, str] = {
    e.FaultStruck: "the fault {b.fault_id} struck {targets} (receipt: {b.receipt})",
    e.FaultHealed: "the fault {b.fault_id} was healed",
    e.ProcessSpawned: "{b.started} was started in {b.slot} as node {b.node_id}",
    e.ProcessExited: "{b.ended} ended (exit code {b.exit_code}, signal {b.signal})",
    e.NodeStarted: "started as {b.role} {b.node_id}, incarnation {b.incarnation}",
    e.ElectionStarted: "stood for election in controller epoch {b.epoch}",
    e.VoteAnswered: "answered the vote of {b.candidate} in epoch {b.epoch}: {b.reason}",
    e.ControllerElected: "became active controller of epoch {b.epoch}",
    e.ControllerResigned: "resigned as active controller of epoch {b.epoch}: {b.reason}",
    e.StateReverted: "went back to the committed state, offset {b.offset}",
    e.MetadataTruncated: "dropped its metadata records from offset {b.from_offset} on",
    e.BrokerCommitted: "committed: broker {b.broker_id} has epoch {b.broker_epoch}, "
    "fenced {b.fenced}, incarnation {b.incarnation:.8}",
    e.PartitionCommitted: "committed: {b.topic}-{b.partition} is led by {b.leader} in leader epoch "
    "{b.leader_epoch}, ISR {isr}",
    e.HeartbeatAnswered: "answered the heartbeat of {b.client} (epoch {b.request_epoch}): "
    "{b.error}, next state {b.next_state}, epoch {b.broker_epoch}",
    e.LeaseGranted: "was granted a lease until its clock says {b.lease_end_ms} ms, broker epoch "
    "{b.broker_epoch}, by controller epoch {b.controller_epoch}",
    e.LeaseExpired: "found the lease of broker {b.broker_id} (epoch {b.broker_epoch}) expired",
    e.HeartbeatRefused: "had its heartbeat refused: {b.error}",
    e.BrokerStateChanged: "went from {b.old} to {b.new}: {b.reason}, broker epoch {b.broker_epoch}",
    e.LeadershipStarted: "leads {b.topic}-{b.partition} in leader epoch {b.leader_epoch}",
    e.LeadershipEnded: "stopped leading {b.topic}-{b.partition}, epoch {b.leader_epoch}: "
    "{b.reason}",
    e.LogTruncated: "cut {b.topic}-{b.partition} from offset {b.to_offset} on: {b.reason}",
    e.LogAppended: "stored {b.topic}-{b.partition} up to offset {b.log_end} in leader epoch "
    "{b.leader_epoch}",
    e.ProduceAnswered: "answered a produce of {b.client} to {b.topic}-{b.partition}: {b.error}, "
    "offset {b.base_offset}, leader epoch {b.leader_epoch}",
    e.FetchServed: "served {b.client} {b.topic}-{b.partition} up to offset {b.to_offset}, as "
    "{b.state}",
    e.ProbeCompleted: "a {b.api} sent to {b.slot} for {b.topic}-{b.partition} was {b.outcome} "
    "{b.error}",
    e.RequestRefused: "refused a {b.api} of {b.client}: {b.error} ({b.reason})",
}
