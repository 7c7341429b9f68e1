"""The conditions for a Kafka cluster to be ready, and to have recovered."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import Layout, Slot, View, describe, kind_name, second_of
from fencepost_kafka.events import (
    ControllerElected,
    ControllerFollowed,
    HeartbeatRefused,
    NodeWarned,
    QuorumLearned,
)
from fencepost_kafka.facade.node import serving
from fencepost_kafka.view import KafkaView
from fencepost_kafka.vocabulary import Role

_REFUSED = kind_name(HeartbeatRefused)
_IN_QUORUM = (kind_name(ControllerElected), kind_name(ControllerFollowed))


def in_quorum(view: View, process: str) -> bool:
    """Whether a controller's process has led the quorum, or has learned its leader."""
    return any((process, kind) in view.latest for kind in _IN_QUORUM)


def _complaint(view: View, process: str) -> str:
    """What a process warned of last while it had not joined, as the end of a sentence."""
    event = view.latest.get((process, kind_name(NodeWarned)))
    if event is None or not isinstance(event.body, NodeWarned):
        return ""
    return f"; its last warning: {event.body.message}"


def voters(view: View) -> tuple[int, ...]:
    """The voters of the quorum, by the active controller's log; none if it names none."""
    process = view.of(KafkaView).controller_process
    learned = view.latest.get((process, kind_name(QuorumLearned)))
    if learned is None or not isinstance(learned.body, QuorumLearned):
        return ()
    return learned.body.voters


def superseded(view: View, layout: Layout) -> Sequence[Slot]:
    """The slots of brokers whose id a second process took over, and has ended since.

    The second process's registration may be stored after that one has ended, so its heal may come
    too early to replace the first one. By the broker's own report, controllers refuse it; by the
    committed records, its epoch is a former one; and by the harness, a second process has run. It
    is fenced, in its own words or by the records: Kafka's brokers do not say so themselves.
    """
    found = []
    for slot in layout.of(Role.BROKER, spares=True):
        process = view.newest.get(slot.name, "")
        second = view.newest.get(second_of(slot.name), "")
        # While the second process lives, the id may still be its own.
        if not second or second in view.alive or process not in view.alive:
            continue
        refused = view.latest.get((process, _REFUSED))
        if refused is None or not isinstance(refused.body, HeartbeatRefused):
            continue
        kafka, epoch = view.of(KafkaView), refused.body.broker_epoch
        fenced = kafka.state.get(process) == "FENCED" or kafka.fenced.get(slot.node_id, False)
        if fenced and 0 <= epoch < kafka.broker_epoch.get(slot.node_id, -1):
            found.append(slot)
    return found


def missing(view: View, layout: Layout) -> tuple[str, ...]:
    """What this cluster lacks to have recovered, a sentence each; empty if nothing.

    A controller that was removed from the voters need not know the active one: no voter sends it
    anything, so after a restart it may stand for election in vain.
    """
    kafka, lacks = view.of(KafkaView), []
    quorum = voters(view)
    brokers = layout.of(Role.BROKER, spares=True)
    gone = {slot.node_id for slot in brokers if kafka.has_left(slot.name, view)}
    if kafka.active_controller is None and layout.of(Role.CONTROLLER):
        lacks.append("no controller is active")
    for slot in layout.slots:
        process = view.newest.get(slot.name, "")
        votes = not quorum or slot.id_as(Role.CONTROLLER) in quorum
        controls = slot.role is Role.CONTROLLER and process in view.alive and votes
        if controls and not in_quorum(view, process):
            lacks.append(
                f"{slot.name} does not know the active controller yet{_complaint(view, process)}"
            )
    for slot in brokers:
        process = view.newest.get(slot.name, "")
        if kafka.has_left(slot.name, view) or (slot.spare and process not in kafka.state):
            continue  # not expected to run, or never registered
        if process not in view.alive:
            lacks.append(f"{slot.name} is dead" if process else f"{slot.name} was not started")
        elif process not in kafka.state:
            lacks.append(f"{slot.name} runs, but has not registered{_complaint(view, process)}")
        elif kafka.state[process] != "ACTIVE":
            lacks.append(f"{slot.name} is {kafka.state[process]}")
        elif kafka.fenced.get(slot.node_id, False):
            lacks.append(f"{slot.name} is fenced in the metadata")
    for slot in layout.slots:
        if slot.duplicate and view.newest.get(slot.name, "") in view.alive:
            lacks.append(f"{slot.name} lives")
    for (topic, partition), known in sorted(kafka.partitions.items()):
        if known.leader < 0:
            lacks.append(f"{topic}-{partition} has no leader (its ISR: {list(known.isr)})")
        elif serving(view, topic, partition) is None:
            lacks.append(
                f"broker {known.leader} has not begun to lead {topic}-{partition} in epoch "
                f"{known.leader_epoch}"
            )
        elif set(known.isr) != set(known.replicas):
            # A broker that was removed for good never returns: the ISR cannot be full while it is a
            # replica.
            out = [f"broker {r}" for r in known.replicas if r not in (*known.isr, *gone)]
            lacks += [f"{describe(out)} not in the ISR of {topic}-{partition}"] if out else []
    return tuple(lacks)
