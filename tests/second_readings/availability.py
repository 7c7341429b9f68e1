"""Second readings of the promises of availability.

Their bounds are what the harness stated (`cluster.bounds`). A reading is certain only where
nothing disturbed the cluster: no fault acts or has acted within a bound before, no machine stalled,
and every process runs but the dead one that the promise is about. In any other time what would be
violated is undecided, since a fault may excuse it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fencepost import (
    ClientFailed,
    ClusterRecovered,
    FaultHealed,
    FaultInjected,
    NodeStopped,
    PhaseStarted,
    ProcessAsked,
    ProcessExited,
    ProcessSpawned,
)
from fencepost.events.names import is_client, slot_of
from fencepost.history.run_end import HARNESS
from fencepost_kafka import (
    BoundsStated,
    BrokerCommitted,
    BrokerDeclared,
    BrokerDeleted,
    ConsumerPositioned,
    PartitionCommitted,
    Polled,
    ProduceCompleted,
    ProduceInvoked,
    ReadCompleted,
)
from second_readings.clients import deleted, logs
from second_readings.reading import NEVER, At, History, Word, reading, softened, undecided, violated

MS = 1_000_000
SECOND = 1_000 * MS
FAULTS = (FaultInjected, FaultHealed)
STATE = (BrokerCommitted, BrokerDeclared, BrokerDeleted, PartitionCommitted)
LIVES = (ProcessSpawned, ProcessExited, PhaseStarted)
STOPPED_WITHIN_NS = 20 * SECOND


def by_harness(history: History, *kinds: type) -> list[At]:
    return [at for at in history.of(*kinds) if at.process == HARNESS]


def bounds(history: History) -> BoundsStated | None:
    stated = by_harness(history, BoundsStated)
    return stated[-1].body if stated else None


def faulted(history: History, from_ns: int, to_ns: int) -> bool:
    """Whether any fault acted in this time."""
    return any(fault.from_ns <= to_ns and fault.to_ns >= from_ns for fault in history.faults)


def stalled(history: History, from_ns: int, to_ns: int) -> bool:
    """Whether the machine, or any process, stood still for more than a tenth of this time."""
    return history.end.stalled_ns(from_ns, to_ns) * 10 > to_ns - from_ns


def changed(history: History, from_ns: int, to_ns: int, but: str = "") -> bool:
    """Whether a process of a node began or ended in this time, or one is dead; but that one."""
    dead: dict[str, bool] = {}
    for at in by_harness(history, ProcessSpawned, ProcessExited):
        ended = isinstance(at.body, ProcessExited)
        process = at.body.ended if ended else at.body.started
        if is_client(process) or process == but or at.at_ns > to_ns:
            continue
        if at.at_ns >= from_ns:
            return True
        dead[slot_of(process)] = ended
    return any(dead.values())


def undisturbed(history: History, from_ns: int, to_ns: int, but: str = "") -> bool:
    return not (
        faulted(history, from_ns, to_ns)
        or stalled(history, from_ns, to_ns)
        or changed(history, from_ns, to_ns, but)
        or history.lost_data
    )


@reading("AVAIL-recovered", BoundsStated, ClusterRecovered, *STATE, *LIVES, *FAULTS)
def recovered(history: History) -> Iterator[Word]:
    """The cluster is whole again within a bound of the last healing: every broker that runs is
    unfenced, and every partition has a live leader and all its replicas in sync."""
    # A partition whose disks were harmed need not recover.
    found = still_lacking(history)
    yield from softened(found) if history.lost_data else found


def still_lacking(history: History) -> Iterator[Word]:
    stated = bounds(history)
    if stated is None:
        return
    for at in by_harness(history, ClusterRecovered):
        if not at.body.recovered:  # the harness waited for it, and looked at the cluster
            slow = stalled(history, at.at_ns - at.body.bound_ms * MS, at.at_ns)
            yield (undecided if slow else violated)(*at.body.missing)
    healings = [at.at_ns for at in by_harness(history, FaultHealed)]
    if not healings:
        return
    for healed_ns in healings:
        # The last one until another fault: whether one acts in between is not always told.
        if any(lacks(history, healed_ns + stated.recovered_ms * MS)):
            yield undecided(healed_ns)
    from_ns = max(healings)
    due_ns = from_ns + stated.recovered_ms * MS
    if min([history.end.ended_at_ns, *_asked_to_end(history)]) <= due_ns:
        return
    said: dict[tuple[int, int], bool] = {}
    for at in history.of(BrokerCommitted):
        place = at.body.broker_id, at.body.offset
        if said.setdefault(place, at.body.fenced) != at.body.fenced:
            yield undecided(*place)  # one record is told in two ways
    lacking = set(lacks(history, due_ns))
    moments = [at.at_ns for at in history.of(*STATE) if from_ns < at.at_ns <= due_ns]
    for moment in (from_ns, *moments):
        brokers, known = newest(history, moment)
        told = {*known, *(f"broker {node}" for node in brokers)}
        unknown = lacking - told
        lacking &= {*lacks(history, moment), *unknown}
    # What was not told by then may have been whole, or not.
    brokers, known = newest(history, due_ns)
    by_then = {*known, *(f"broker {node}" for node in brokers)}
    for moment in [at.at_ns for at in history.of(*STATE) if at.at_ns > due_ns]:
        for what in set(lacks(history, moment)) - by_then:
            yield undecided(what)
    still = any(fault.to_ns > from_ns for fault in history.faults)
    disturbed = stalled(history, from_ns, due_ns) or changed(history, from_ns, due_ns)
    sure = history.end.complete and not still and not disturbed
    brokers, known = newest(history, from_ns)
    all_along = {*known, *(f"broker {node}" for node in brokers)}
    for what in sorted(lacking):
        yield (violated if sure and what in all_along else undecided)(what)


def lacks(history: History, at_ns: int) -> Iterator[str]:
    """What a cluster lacks to be whole, by the newest records of that time."""
    fenced, partitions = newest(history, at_ns)
    alive = running_brokers(history, at_ns)
    for node in alive:
        if fenced.get(node):
            yield f"broker {node}"
    for name, record in partitions.items():
        if deleted(history, record.topic):
            continue
        if record.leader not in alive or not set(record.replicas) <= set(record.isr):
            yield name


def newest(history: History, at_ns: int) -> tuple[dict[int, bool], dict[str, PartitionCommitted]]:
    """By the newest records: which brokers are fenced, and the state of each partition."""
    fenced: dict[int, tuple[int, bool]] = {}
    partitions: dict[str, PartitionCommitted] = {}
    term = -1
    for at in history.of(*STATE):
        body = at.body
        if at.at_ns > at_ns:
            break
        match body:
            case PartitionCommitted():
                name = f"{body.topic}-{body.partition}"
                known = partitions.get(name)
                if known is None or body.offset > known.offset:
                    partitions[name] = body
            case BrokerCommitted():
                if body.offset >= fenced.get(body.broker_id, (-1, False))[0]:
                    fenced[body.broker_id] = body.offset, body.fenced
            # One that is deleted is no broker: it has nothing that could be fenced.
            case BrokerDeleted() if body.offset >= fenced.get(body.broker_id, (-1, False))[0]:
                fenced[body.broker_id] = body.offset, True
            # What a deposed controller declares is of no effect.
            case BrokerDeclared() if body.controller_epoch >= term:
                term = body.controller_epoch
                fenced[body.broker_id] = -1, body.new not in ("Active", "Stopping")
    return {node: is_fenced for node, (_, is_fenced) in fenced.items()}, partitions


def running_brokers(history: History, at_ns: int) -> set[int]:
    """The ids of brokers of which a process runs."""
    alive: dict[str, int] = {}
    for at in by_harness(history, ProcessSpawned, ProcessExited):
        if at.at_ns > at_ns:
            break
        if isinstance(at.body, ProcessExited):
            alive.pop(at.body.ended, None)
        elif at.body.role == "broker":
            alive[at.body.started] = at.body.node_id
    return set(alive.values())


@reading("AVAIL-running", ProcessExited, NodeStopped, ProcessSpawned, *FAULTS)
def running(history: History) -> Iterator[Word]:
    """A node ends only when it is asked to, or says why it may."""
    words = {at.process for at in history.of(NodeStopped)}
    started = {at.body.started: at for at in by_harness(history, ProcessSpawned)}
    for at in by_harness(history, ProcessExited):
        body = at.body
        if is_client(body.ended) or body.expected:
            continue
        began = started.get(body.ended)
        in_order = body.exit_code == 0 and body.signal == 0 and body.ended in words
        # Any of these may be why it ended; without them nothing may.
        may = in_order or body.lacked or history.lost_data
        may = may or began is None or (at.at_ns - began.at_ns <= 30 * SECOND and history.faults)
        yield (undecided if may else violated)(body.ended)


@reading("AVAIL-stopped", ProcessAsked, ProcessExited, ProcessSpawned, *FAULTS)
def stopped(history: History) -> Iterator[Word]:
    """A node that is asked to end does so within 20 s, not counting the time in which a fault keeps
    it from those that it must tell."""
    ends: dict[str, int] = {}
    for at in by_harness(history, ProcessExited):
        ends.setdefault(at.body.ended, at.at_ns)
    asked: set[str] = set()
    for at in by_harness(history, ProcessAsked):
        process = at.body.asked
        if is_client(process) or process in asked:
            continue
        asked.add(process)
        until_ns = min(ends.get(process, NEVER), history.end.ended_at_ns)
        if until_ns - at.at_ns > STOPPED_WITHIN_NS:
            sure = undisturbed(history, at.at_ns - SECOND, until_ns, process)
            yield (violated if sure else undecided)(process)


@reading("AVAIL-fenced", BoundsStated, *STATE, *LIVES, *FAULTS)
def fenced(history: History) -> Iterator[Word]:
    """A dead broker leads nothing and is fenced within a bound of its death."""
    stated = bounds(history)
    spawned = {at.body.started: at for at in by_harness(history, ProcessSpawned)}
    for death in by_harness(history, ProcessExited):
        born = spawned.get(death.body.ended)
        if stated is None or born is None or born.body.role != "broker":
            continue
        due_ns = death.at_ns + stated.fenced_ms * MS
        slot, node = born.body.slot, born.body.node_id
        until_ns = min([history.end.ended_at_ns, *_asked_to_end(history)])
        if until_ns <= due_ns:
            continue
        # Its next process is another one once that is registered; before, the dead one is not
        # replaced, however often its slot is started.
        again = any(
            at.body.node_id == node and death.at_ns <= at.at_ns <= due_ns for at in spawned.values()
        )
        sure = (
            history.end.complete and not again and node not in running_brokers(history, death.at_ns)
        )
        # Once its bound is over it stays nothing: no record makes it something again.
        next_ns = min(
            (at.at_ns for at in spawned.values() if at.body.node_id == node and at.at_ns > due_ns),
            default=NEVER,
        )
        later = {
            at.at_ns for at in history.of(*STATE) if due_ns < at.at_ns < min(until_ns, next_ns)
        }
        for moment in (due_ns, *sorted(later)):
            calm_ns = death.at_ns - stated.fenced_ms * MS
            certain = sure and undisturbed(history, calm_ns, moment, death.body.ended)
            for what, present in still(history, node, moment):
                yield (violated if certain and present else undecided)(slot, what)
        # Where records name incarnations, the next process is the broker once one names it: if it
        # leads after it was started, that record may not be told.
        named = any(at.body.incarnation for at in history.of(BrokerCommitted))
        if named and next_ns < until_ns:
            for what, _ in still(history, node, until_ns):
                yield undecided(slot, what)


def still(history: History, node: int, at_ns: int) -> Iterator[tuple[str, bool]]:
    """What a broker is by the newest records of that time, and whether that is certain: a topic
    that was ever deleted may be gone, or be there again."""
    is_fenced, partitions = newest(history, at_ns)
    for name, record in partitions.items():
        if record.leader == node:
            yield name, not deleted(history, record.topic)
    if is_fenced.get(node) is False:
        yield "unfenced", True


def _asked_to_end(history: History) -> Iterator[int]:
    """When the harness began to end the cluster."""
    for at in by_harness(history, PhaseStarted):
        if at.body.phase == "end":
            yield at.at_ns


def load_ended_ns(history: History) -> int:
    """When clients were asked to finish; no client need try any more after that."""
    drains = [at.at_ns for at in by_harness(history, PhaseStarted) if at.body.phase == "drain"]
    return min(drains, default=history.end.ended_at_ns)


def ends_of(history: History, process: str) -> list[int]:
    """When a client's process ended, or its library gave up for good."""
    ended = [at for at in by_harness(history, ProcessExited) if at.body.ended == process]
    failed = [at for at in history.of(ClientFailed) if at.body.fatal and at.process == process]
    return [at.at_ns for at in (*ended, *failed)]


def in_sync(history: History, log_name: str, at_ns: int) -> set[int]:
    """The newest committed ISR of a partition."""
    newest: tuple[int, tuple[int, ...]] = (-1, ())
    for at in history.of(PartitionCommitted):
        if f"{at.body.topic}-{at.body.partition}" == log_name and at.at_ns <= at_ns:
            newest = max(newest, (at.body.offset, at.body.isr))
    return set(newest[1])


@reading(
    *("AVAIL-writable", BoundsStated, ProduceInvoked, ProduceCompleted, PartitionCommitted),
    *(ClientFailed, *LIVES, *FAULTS),
)
def writable(history: History) -> Iterator[Word]:
    """A partition with a live, connected majority in its ISR takes writes with acks=all, and does
    so again within a bound of its leader's death."""
    stated = bounds(history)
    for log in logs(history) if stated is not None else ():
        bound_ns = stated.writable_ms * MS
        tries = [at for at in log.invoked.values() if at.body.acks == -1]
        done = [at for at in log.completed if at.body.acks == -1]
        good = sorted(at.at_ns for at in done if at.body.outcome == "ok")
        shown = sorted(at.at_ns for at in [*tries, *done])
        for earlier, later in pairwise(good):
            # Clients may pause between two writes, and want to write all the same.
            if later - earlier > bound_ns:
                yield undecided(log.name)
        ended = {at.body.operation for at in done}
        pending = [at for at in tries if at.body.operation not in ended]
        for at in pending:
            until_ns = min([history.end.ended_at_ns, *ends_of(history, at.process)])
            before = [one for one in good if one <= until_ns]
            if before and until_ns - max(before) > bound_ns:
                yield undecided(log.name)  # the same, of a write that never ended
        for first in tries:
            next_ns = min((at for at in good if at >= first.at_ns), default=NEVER)
            if first.body.operation in ended:
                # A client wanted to write from its first attempt on, and later still.
                next_ns = min(next_ns, load_ended_ns(history))
                last_ns = max((at for at in shown if at <= next_ns), default=first.at_ns)
                waits = [(first.at_ns, last_ns)]
            else:  # its library tries on, until the client ends
                until_ns = min([history.end.ended_at_ns, *ends_of(history, first.process)])
                moments = [at for at in good if first.at_ns < at < until_ns]
                waits = list(pairwise([first.at_ns, *moments, until_ns]))
            from_ns, last_ns = max(waits, key=lambda one: one[1] - one[0])
            if last_ns - from_ns <= bound_ns:
                continue
            isr = in_sync(history, log.name, from_ns)
            sure = (
                undisturbed(history, from_ns - bound_ns, last_ns)
                and len(isr) >= max(2, stated.least_in_sync)
                and not deleted(history, log.topic)
                and history.end.complete
            )
            yield (violated if sure else undecided)(log.name, first.body.operation)


@reading(
    *("AVAIL-readable", BoundsStated, ProduceInvoked, ProduceCompleted, Polled, ReadCompleted),
    *(ConsumerPositioned, PartitionCommitted, *LIVES, *FAULTS),
)
def readable(history: History) -> Iterator[Word]:
    """A consumer gets the messages that were acknowledged with acks=all, and is not stuck before
    them for longer than a bound."""
    stated = bounds(history)
    for log in logs(history) if stated is not None else ():
        bound_ns = stated.writable_ms * MS
        readers = {at.process for at in log.polls if at.body.final}
        for consumer in {at.process for at in (*log.polls, *log.moves)} - readers:
            own = sorted(
                (at for at in [*log.polls, *log.moves] if at.process == consumer),
                key=lambda at: at.place,
            )
            ends = [at.at_ns for at in by_harness(history, ProcessExited)]
            until_ns = min([load_ended_ns(history), history.end.ended_at_ns, *ends[-1:]])
            for at, after in zip(own, [*own[1:], None], strict=True):
                if isinstance(at.body, Polled):
                    wanted = at.body.offsets[-1] + 1 if at.body.offsets else None
                else:  # -2: the beginning, -1: the end
                    wanted = {-2: 0, -1: None}.get(at.body.offset, at.body.offset)
                if wanted is None:
                    continue
                beyond = [ack.at_ns for _, ack in log.acknowledged(-1) if ack.body.offset >= wanted]
                from_ns = max(at.at_ns, min(beyond, default=NEVER))
                to_ns = until_ns if after is None else min(after.at_ns, until_ns)
                if to_ns - from_ns <= bound_ns:
                    continue
                isr = in_sync(history, log.name, from_ns)
                sure = (
                    undisturbed(history, from_ns - bound_ns, to_ns)
                    and len(isr) >= max(2, stated.least_in_sync)
                    and not deleted(history, log.topic)
                    and history.end.complete
                )
                yield (violated if sure else undecided)(log.name, consumer)
