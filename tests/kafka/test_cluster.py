"""The parts that a cluster lacks to have recovered, and conditions on a node: pure, over the
view."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import pytest
from tests.kafka.kafka_views import kafka_view

from fencepost import (
    Cluster,
    Condition,
    Layout,
    NodeStarted,
    Runtime,
    Shape,
    Slot,
    Stalled,
    View,
    kind_name,
)
from fencepost.events import Event
from fencepost.model.cluster import stalled_since
from fencepost_kafka import (
    ControllerElected,
    ControllerResigned,
    HeartbeatRefused,
    KafkaView,
    NodeWarned,
    PartitionView,
    Role,
    Timing,
)
from fencepost_kafka.recovery import superseded
from fencepost_kafka.testing import KafkaCluster, KafkaNode, missing

BROKER = Slot("broker-2", Role.BROKER, 2, 2)
DUPLICATE = Slot("broker-2-duplicate", Role.BROKER, 2, 3, duplicate=True)
CONTROLLER = Slot("controller-1", Role.CONTROLLER, 1, 1)
LAYOUT = Layout((CONTROLLER, BROKER, DUPLICATE, Slot("clients", Role.CLIENT, 0, 4)), ())


ELECTED = Event("r", "controller-1#1", 0, 0, ControllerElected(epoch=1, log_end=0, last_epoch=0))


def healthy() -> View:
    led = PartitionView(1, 2, 5, (2,), (2,), serving=2, serving_epoch=5)
    return kafka_view(
        active_controller=1,
        alive={"broker-2#1", "controller-1#1"},
        newest={"broker-2": "broker-2#1", "controller-1": "controller-1#1"},
        latest={("controller-1#1", kind_name(ControllerElected)): ELECTED},
        state={"broker-2#1": "ACTIVE"},
        fenced={2: False},
        partitions={("orders", 0): led},
    )


def test_a_healthy_cluster_lacks_nothing() -> None:
    assert missing(healthy(), LAYOUT) == ()


def no_controller(view: View) -> None:
    view.of(KafkaView).active_controller = None


def controller_restarted(view: View) -> None:
    view.newest["controller-1"] = "controller-1#2"
    view.alive.add("controller-1#2")


def dead(view: View) -> None:
    view.alive.discard("broker-2#1")


def restarted(view: View) -> None:
    view.newest["broker-2"] = "broker-2#2"
    view.alive.add("broker-2#2")


TIMED_OUT = "Unable to register the broker because the RPC got timed out before it could be sent."


def warned(view: View, process: str) -> None:
    view.apply(
        Event(
            "run",
            process,
            1,
            1,
            NodeWarned(level="WARN", logger="BrokerLifecycleManager", message=TIMED_OUT),
        )
    )


def cannot_register(view: View) -> None:
    restarted(view)
    warned(view, "broker-2#2")


def controller_complains(view: View) -> None:
    controller_restarted(view)
    warned(view, "controller-1#2")


def fenced(view: View) -> None:
    view.of(KafkaView).state["broker-2#1"] = "FENCED"


def fenced_by_controller(view: View) -> None:
    view.of(KafkaView).fenced[2] = True


def duplicate_lives(view: View) -> None:
    view.newest["broker-2-duplicate"] = "broker-2-duplicate#1"
    view.alive.add("broker-2-duplicate#1")


def leaderless(view: View) -> None:
    view.of(KafkaView).partitions["orders", 0].leader = -1


def not_serving_yet(view: View) -> None:
    view.of(KafkaView).partitions["orders", 0].leader_epoch = 6


def shrunk(view: View) -> None:
    view.of(KafkaView).partitions["orders", 0].replicas = (2, 3)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (no_controller, "no controller is active"),
        (controller_restarted, "controller-1 does not know the active controller yet"),
        (dead, "broker-2 is dead"),
        (restarted, "broker-2 runs, but has not registered"),
        (cannot_register, f"broker-2 runs, but has not registered; its last warning: {TIMED_OUT}"),
        (
            controller_complains,
            f"controller-1 does not know the active controller yet; its last warning: {TIMED_OUT}",
        ),
        (fenced, "broker-2 is FENCED"),
        (fenced_by_controller, "broker-2 is fenced in the metadata"),
        (duplicate_lives, "broker-2-duplicate lives"),
        (leaderless, "orders-0 has no leader (its ISR: [2])"),
        (not_serving_yet, "broker 2 has not begun to lead orders-0 in epoch 6"),
        (shrunk, "broker 3 not in the ISR of orders-0"),
    ],
)
def test_missing_parts_are_named_in_words(harm: Callable[[View], None], says: str) -> None:
    view = healthy()
    harm(view)
    assert missing(view, LAYOUT) == (says,)


def test_a_node_is_judged_by_its_newest_process() -> None:
    node = KafkaNode(BROKER)
    view = healthy()
    assert node.active.holds(view)
    assert node.alive.holds(view)
    assert node.leads("orders", 0).holds(view)
    assert node.in_sync("orders", 0).holds(view)
    assert not node.fenced.holds(view)
    restarted(view)
    assert not node.active.holds(view)
    assert node.active.description == "broker-2 to be ACTIVE"


def test_two_conditions_make_one() -> None:
    node = KafkaNode(BROKER)
    both = node.active & node.fenced_by_controller
    view = healthy()
    assert not both.holds(view)
    fenced_by_controller(view)
    assert both.holds(view)
    assert both.description == "broker-2 to be ACTIVE and broker-2 to be fenced in the metadata"


def test_stalls_are_added_up_a_process() -> None:
    stall = Event("r", "broker-2#1", 0, 100, Stalled(stalled_ns=30))
    later = replace_at(stall, 200)
    other = Event("r", "harness", 0, 150, Stalled(stalled_ns=50))
    assert stalled_since([stall, later, other], from_ns=100) == 60
    assert stalled_since([stall, later, other], from_ns=101) == 50
    assert stalled_since([], from_ns=0) == 0


def replace_at(event: Event, at_ns: int) -> Event:
    return Event(event.run, event.process, event.node_seq + 1, at_ns, event.body)


TIMING = Timing(300, 2_000, 500, 9_000)


def superseded_view() -> View:
    """A second process took the id of broker 2, and ended; controllers refuse the first one."""
    view = healthy()
    view.newest[DUPLICATE.name] = "broker-2-duplicate#1"
    kafka = view.of(KafkaView)
    kafka.state["broker-2#1"], kafka.broker_epoch[2] = "FENCED", 9
    refuse(view, 5)
    return view


def refuse(view: View, epoch: int) -> None:
    """Controllers refuse broker 2, which has this epoch."""
    error = "DUPLICATE_BROKER_REGISTRATION"
    body = HeartbeatRefused(broker_id=2, broker_epoch=epoch, error=error, controller=1)
    view.latest["broker-2#1", kind_name(HeartbeatRefused)] = Event("r", "broker-2#1", 1, 1, body)


def the_second_runs(view: View) -> None:
    view.alive.add("broker-2-duplicate#1")


def without_second(view: View) -> None:
    del view.newest[DUPLICATE.name]


def active(view: View) -> None:
    view.of(KafkaView).state["broker-2#1"] = "ACTIVE"


def never_refused(view: View) -> None:
    del view.latest["broker-2#1", kind_name(HeartbeatRefused)]


def of_the_newest_epoch(view: View) -> None:
    refuse(view, 9)


def not_registered_yet(view: View) -> None:
    refuse(view, -1)


def test_a_broker_whose_id_a_second_process_took_is_superseded_once_that_has_ended() -> None:
    assert superseded(superseded_view(), LAYOUT) == [BROKER]


def test_a_superseded_broker_need_not_know_that_it_is_fenced() -> None:
    """Kafka's brokers do not say so, and the records do."""
    view = superseded_view()
    active(view)
    view.of(KafkaView).fenced[2] = True
    assert superseded(view, LAYOUT) == [BROKER]


@pytest.mark.parametrize(
    "change",
    [
        *(the_second_runs, without_second, active, never_refused, of_the_newest_epoch),
        *(not_registered_yet, dead),
    ],
)
def test_a_broker_that_may_regain_its_id_is_not_superseded(change: Callable[[View], None]) -> None:
    view = superseded_view()
    change(view)
    assert superseded(view, LAYOUT) == []


class Moving:
    """A run whose next events have come, as they may have on processes: `advance` applies them one
    by one, while reading the view applies all of them."""

    layout = LAYOUT

    def __init__(self, view: View, *coming: Event) -> None:
        self._view = view
        self._coming = deque(coming)

    @property
    def view(self) -> View:
        while self._coming:
            self._view.apply(self._coming.popleft())
        return self._view

    def now_ns(self) -> int:
        return 0

    def events(self) -> Sequence[Event]:
        return ()

    def advance(self, until: Condition, deadline_ns: int) -> Event | None:
        while self._coming:
            event = self._coming.popleft()
            self._view.apply(event)
            if until.holds(self._view):
                return event
        return None


def cluster_of(run: Moving) -> KafkaCluster:
    runtime, bound_ms = cast(Runtime, run), TIMING.recovery_bound_ms
    base = Cluster(runtime, lambda view: missing(view, LAYOUT), bound_ms, Shape())
    return KafkaCluster(base, TIMING)


def elected_and_gone() -> KafkaCluster:
    """A cluster that lacks a controller, then has one, and lacks it again."""
    view = healthy()
    no_controller(view)
    bodies = (
        NodeStarted(role="controller", node_id=1, incarnation="c", log_end=-1),
        ControllerElected(epoch=1, log_end=0, last_epoch=0),
        ControllerResigned(epoch=1, reason="no_majority"),
    )
    events = [Event("run", "controller-1#1", n, n, body) for n, body in enumerate(bodies)]
    return cluster_of(Moving(view, *events))


def test_a_process_that_was_there_once_is_found_though_it_is_gone_by_now() -> None:
    assert elected_and_gone().active_controller.name == "controller-1"


def test_a_cluster_that_recovered_did_whatever_came_after() -> None:
    recovered = elected_and_gone().await_recovery()
    assert (recovered.recovered, recovered.missing) == (True, ())


def test_a_cluster_that_never_recovers_reports_what_it_lacks() -> None:
    view = healthy()
    no_controller(view)
    recovered = cluster_of(Moving(view)).await_recovery()
    assert (recovered.recovered, recovered.missing) == (False, ("no controller is active",))
