"""Defects of the plane over ZooKeeper, by the clauses of KIP-343 and KIP-380."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from fencepost import Defect
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.legacy.core.policies import (
    LegacyBrokerPolicies,
    LegacyControllerPolicies,
)
from fencepost_clusters.reference.legacy.core.states import LIVE
from fencepost_clusters.reference.over_zookeeper.core.own_state import OwnState
from fencepost_clusters.reference.policies import Policies, PolicyDefect
from fencepost_clusters.reference.wire.legacy import BrokerState

_BROKER, _CONTROLLER = LegacyBrokerPolicies(), LegacyControllerPolicies()


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


# The first process of a broker has no former one, and sends its own.
def _former_incarnation(own: int, former: int | None) -> int:
    return own if former is None else former


def _active_at_once(version: int) -> BrokerState:
    return BrokerState.ACTIVE


def _names_inactive(state: BrokerState) -> bool:
    return state is not BrokerState.INITIAL


def _refuses_while_stopping(state: OwnState) -> bool:
    return state is OwnState.ACTIVE


def _serves_while_fenced(state: OwnState) -> bool:
    return state is not OwnState.STARTING


def _fences_never(contact_ns: int, timeout_ns: int) -> int:
    return contact_ns + (1 << 60)


# A quarter of the time: the broker fences itself while the controller still counts it as active.
def _fences_early(contact_ns: int, timeout_ns: int) -> int:
    return contact_ns + timeout_ns // 4


# A broker that is not fenced takes its answers as it should.
def _stays_fenced(state: OwnState, answered: BrokerState, stopping: bool) -> OwnState:
    if state is OwnState.FENCED:
        return state
    return _BROKER.state_when_accepted(state, answered, stopping)


def _stays_active(state: OwnState) -> OwnState:
    return state


# A request without an epoch has -1, which is less than any epoch.
def _refuses_without_epoch(requested: int, own: int) -> bool:
    return requested < own


def _skips_stop_replica(api: str) -> bool:
    return api != "StopReplica"


# The epoch that the controller adopted from a heartbeat is compared, and not the one for which it
# sent the broker its roles. So it takes the restarted broker for a known one.
def _adopted_epoch(initialised: int, adopted: int) -> int:
    return adopted


def _stays_inactive(state: BrokerState, target: BrokerState) -> BrokerState:
    return state if state is BrokerState.INACTIVE else target


def _ignores_target(state: BrokerState, target: BrokerState) -> BrokerState:
    return BrokerState.ACTIVE


def _also_former_controller(is_controller: bool, was_controller: bool) -> bool:
    return is_controller or was_controller


def _any_broker_leads(partition: Partition, broker: int, leader_epoch: int) -> bool:
    return broker in partition.replicas


# Other rules about an ISR still hold: only the empty one is let through.
def _may_be_empty(partition: Partition, isr: Collection[int], live: Collection[int]) -> bool:
    return not isr or _CONTROLLER.is_valid_isr(partition, isr, live)


def _stays_while_heartbeats_arrive(heard_ns_ago: int, timeout_ns: int) -> bool:
    return heard_ns_ago < timeout_ns


# One kind of malformed heartbeat is still refused: the others are taken.
def _unknown_states_only(broker: int, has_endpoint: bool, target: int) -> bool:
    return target not in list(BrokerState)


# Brokers of the old protocol send no heartbeats, and so are silent from the start.
def _is_silent_in_any_version(version: int, silent_ns: int, timeout_ns: int) -> bool:
    return silent_ns >= timeout_ns


# A broker that hosts a single partition gets none at all.
def _first_half(hosted: tuple[Partition, ...]) -> tuple[Partition, ...]:
    return hosted[: len(hosted) // 2]


def _newcomers_only(was_known: bool) -> bool:
    return not was_known


# The other control requests are sent again. What is lost is only the state of the cluster.
def _drops_update_metadata(api: str) -> bool:
    return api != "UpdateMetadata"


def _info_5_always(protocol: int) -> int:
    return 5


def _inactive_may_lead(state: BrokerState) -> bool:
    return state in LIVE or state is BrokerState.INACTIVE


def _ends_at_once(remaining: int, asked_ns: int, now_ns: int, limit_ns: int) -> bool:
    return True


def _counts_every_fetch(p: Policies) -> Policies:
    """Replaces two decisions, since `is_past_epoch` refuses the fetch before `is_current_epoch`."""
    counting = replace(p.replication, is_past_epoch=_never, is_current_epoch=_always)
    return replace(p, replication=counting)


def _of_broker(**replaced: Callable[..., Any]) -> Callable[[Policies], Policies]:
    def change(p: Policies) -> Policies:
        broker = replace(p.legacy.broker, **replaced)
        return replace(p, legacy=replace(p.legacy, broker=broker))

    return change


def _of_controller(**replaced: Callable[..., Any]) -> Callable[[Policies], Policies]:
    def change(p: Policies) -> Policies:
        controller = replace(p.legacy.controller, **replaced)
        return replace(p, legacy=replace(p.legacy, controller=controller))

    return change


def _defect(
    name: str, breaks: str | tuple[str, ...], says: str, change: Callable[[Policies], Policies]
) -> PolicyDefect:
    clauses = (breaks,) if isinstance(breaks, str) else breaks
    return PolicyDefect(Defect(name, clauses, says), change)


DEFECTS = (
    _defect(
        "sends-former-incarnation",
        "HB-01",
        "a restarted broker sends its former incarnation id",
        _of_broker(incarnation_id=_former_incarnation),
    ),
    _defect(
        "active-before-heartbeat",
        "HB-02",
        "brokers count as active before their first heartbeat",
        _of_controller(state_of_newcomer=_active_at_once),
    ),
    _defect(
        "metadata-names-inactive",
        "HB-03",
        "an inactive broker stays in the metadata of clients",
        _of_controller(is_announced=_names_inactive),
    ),
    _defect(
        "elects-inactive",
        "HB-03",
        "an inactive broker can be elected leader",
        _of_controller(may_lead=_inactive_may_lead),
    ),
    _defect(
        "refuses-while-stopping",
        "HB-04",
        "a stopping broker refuses traffic at once",
        _of_broker(serves=_refuses_while_stopping),
    ),
    _defect(
        "exits-while-leading",
        "HB-05",
        "a stopping broker exits with leaderships still on it",
        _of_broker(may_end=_ends_at_once),
    ),
    _defect(
        "never-fences-itself",
        ("HB-06", "HB-25"),
        "a broker cut off from the controller never fences itself",
        _of_broker(fences_at_ns=_fences_never),
    ),
    _defect(
        "serves-while-fenced",
        "HB-07",
        "a fenced broker accepts new requests",
        _of_broker(serves=_serves_while_fenced),
    ),
    _defect(
        "stays-fenced",
        "HB-08",
        "a fenced broker stays fenced for good",
        _of_broker(state_when_accepted=_stays_fenced),
    ),
    _defect(
        "silent-stays-active",
        "HB-09",
        "the controller never declares a silent broker inactive",
        _of_controller(is_silent=_never),
    ),
    _defect(
        "inactive-for-good",
        "HB-10",
        "an inactive broker is never declared active again",
        _of_controller(settled_state=_stays_inactive),
    ),
    _defect(
        "fences-before-controller",
        "HB-11",
        "a broker fences itself before the controller has declared it inactive",
        _of_broker(fences_at_ns=_fences_early),
    ),
    _defect(
        "takes-old-incarnation",
        "HB-12",
        "an old incarnation's heartbeat is accepted",
        _of_controller(is_old_incarnation=_never),
    ),
    _defect(
        "adopting-hides-bounce",
        "HB-13",
        "adopting a newer incarnation id hides the bounce, and the broker is not initialised",
        _of_controller(compared_epoch=_adopted_epoch),
    ),
    _defect(
        "ignores-target",
        "HB-14",
        "the target state is ignored",
        _of_controller(settled_state=_ignores_target),
    ),
    _defect(
        "takes-malformed",
        "HB-15",
        "a malformed heartbeat is accepted",
        _of_controller(is_malformed=_unknown_states_only),
    ),
    _defect(
        "writes-isr-itself",
        "HB-16",
        "a leader writes its ISR to ZooKeeper past the controller",
        _of_broker(asks_controller_for_isr=_never),
    ),
    _defect(
        "former-controller-judges",
        "HB-17",
        "a former controller applies an IsrChange",
        _of_controller(judges_isr_changes=_also_former_controller),
    ),
    _defect(
        "overwritten-changes-isr",
        "HB-18",
        "an overwritten registration still changes ISRs",
        _of_controller(may_change_isrs=_always),
    ),
    _defect(
        "former-leader-changes-isr",
        "HB-19",
        "a former leader shrinks or expands the ISR",
        _of_controller(leads=_any_broker_leads),
    ),
    _defect(
        "isr-shrinks-to-nothing",
        "HB-20",
        "the ISR can be shrunk to nothing",
        _of_controller(is_valid_isr=_may_be_empty),
    ),
    _defect(
        "answers-before-stored",
        "HB-21",
        "NONE is answered before the change is stored, and the change can be lost",
        _of_controller(answers_before_stored=_always),
    ),
    _defect(
        "old-protocol-heartbeats",
        "HB-22",
        "an old-protocol broker sends heartbeats",
        _of_broker(sends_heartbeats=_always),
    ),
    _defect(
        "old-protocol-fences-itself",
        "HB-22",
        "an old-protocol broker fences itself",
        _of_broker(fences_itself=_always),
    ),
    _defect(
        "old-protocol-asks-controller",
        "HB-22",
        "an old-protocol leader asks the controller for its ISR",
        _of_broker(asks_controller_for_isr=_always),
    ),
    _defect(
        "old-protocol-registers-anew",
        "HB-22",
        "an old-protocol broker registers with BrokerInfo version 5",
        _of_broker(info_version=_info_5_always),
    ),
    _defect(
        "legacy-declared-silent",
        "HB-23",
        "legacy brokers are declared inactive for not heartbeating",
        _of_controller(is_silent=_is_silent_in_any_version),
    ),
    _defect(
        "overwritten-fetch-counts",
        "HB-24",
        "the fetches of an overwritten process count as those of the current one",
        _counts_every_fetch,
    ),
    _defect(
        "drops-update-metadata",
        "HB-25",
        "an UpdateMetadata that failed once is not sent again",
        _of_controller(is_sent_again=_drops_update_metadata),
    ),
    _defect(
        "deposed-answers-heartbeats",
        "HB-27",
        "a deposed controller keeps answering heartbeats",
        _of_controller(answers_as_controller=_also_former_controller),
    ),
    _defect(
        "stays-without-znode",
        "HB-28",
        "a broker without a znode stays active on its heartbeats",
        _of_controller(stays_registered=_stays_while_heartbeats_arrive),
    ),
    _defect(
        "refused-serves-on",
        "HB-29",
        "a refused broker serves on",
        _of_broker(state_when_refused=_stays_active),
    ),
    _defect(
        "obeys-old-update-metadata",
        "BE-02",
        "a restarted broker obeys an UpdateMetadata meant for its former generation",
        _of_broker(refuses_update_metadata=_never),
    ),
    _defect(
        "obeys-old-stop-replica",
        "BE-03",
        "a replica stays offline on a live broker after a bounce during controlled shutdown",
        _of_broker(refuses_stop_replica=_never),
    ),
    _defect(
        "takes-old-shutdown",
        "BE-04",
        "a retried ControlledShutdown moves leaders off, and stops replicas of, a broker that "
        "already restarted",
        _of_controller(is_stale_shutdown=_never),
    ),
    _defect(
        "misses-fast-bounce",
        "BE-05",
        "a bounce faster than the broker-change event is missed",
        _of_controller(has_bounced=_never),
    ),
    _defect(
        "restarted-not-initialised",
        "BE-06",
        "metadata is not sent to a restarted broker",
        _of_controller(initialises=_newcomers_only),
    ),
    _defect(
        "obeys-old-leader-and-isr",
        "BE-07",
        "a LeaderAndIsr from before the start-up is obeyed and overwrites the high-watermark "
        "checkpoint, and the follower truncates wrongly (KAFKA-7235)",
        _of_broker(refuses_leader_and_isr=_never),
    ),
    _defect(
        "first-leader-and-isr-partial",
        "BE-07",
        "the first LeaderAndIsr of a generation is partial",
        _of_controller(first_partitions=_first_half),
    ),
    _defect(
        "obeys-deposed-controller",
        "BE-08",
        "a deposed controller's requests are obeyed",
        _of_broker(is_of_deposed_controller=_never),
    ),
    _defect(
        "answers-without-effect",
        "BE-09",
        "a control request is answered NONE and not applied",
        _of_broker(carries_out=_skips_stop_replica),
    ),
    _defect(
        "refuses-without-epoch",
        "BE-10",
        "a missing broker epoch is rejected as stale",
        _of_broker(refuses_update_metadata=_refuses_without_epoch),
    ),
)
