"""The targets into which a random schedule injects faults, and those that it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from random import Random  # noqa: TID251 - seeded here

import pytest
from tests.kafka.kafka_views import kafka_view

from fencepost import Event, Layout, Moment, Planned, ProcessSpawned, Slot, View
from fencepost_kafka import (
    BrokerStateChanged,
    ControllerFollowed,
    KafkaView,
    PartitionView,
    Role,
    Timing,
)
from fencepost_kafka.faults.hold import hold
from fencepost_kafka.faults.random_faults import KafkaFaultChooser
from fencepost_kafka.faults.situation import LOSES_DATA, Servers, starting

CONTROLLERS = tuple(Slot(f"controller-{n}", Role.CONTROLLER, 100 + n, n) for n in (1, 2, 3))
BROKERS = tuple(Slot(f"broker-{n}", Role.BROKER, n, 3 + n) for n in (1, 2, 3))
DUPLICATES = tuple(
    Slot(f"broker-{n}-duplicate", Role.BROKER, n, 6 + n, duplicate=True) for n in (1, 2, 3)
)
LAYOUT = Layout((*CONTROLLERS, *BROKERS, *DUPLICATES, Slot("clients", Role.CLIENT, -1, 10)), ())
TIMING = Timing(300, 3_000, 500, 20_000)
STRIKES = KafkaFaultChooser(TIMING)
LINKS = ("cut", "partition", "isolate", "cut_from_controllers", "slow_link")


def record(view: View, process: str, body: object) -> None:
    view.apply(
        Event(
            run="run",
            process=process,
            node_seq=view.count + 1,
            at_ns=view.count,
            body=body,
            cause=None,
        )
    )


def begun(*but: str) -> View:
    """All nodes have begun to work, except these, whose processes run."""
    view = kafka_view()
    for slot in (*CONTROLLERS, *BROKERS):
        process = f"{slot.name}#1"
        record(
            view,
            "harness",
            ProcessSpawned(
                started=process, slot=slot.name, role=slot.role.value, node_id=slot.node_id, pid=1
            ),
        )
        if slot.name in but:
            continue
        if slot.role is Role.CONTROLLER:
            record(view, process, ControllerFollowed(epoch=1, leader=101))
        else:
            record(
                view,
                process,
                BrokerStateChanged(
                    broker_id=slot.node_id,
                    old="FENCED",
                    new="ACTIVE",
                    broker_epoch=5,
                    reason="unfenced",
                ),
            )
    view.of(KafkaView).active_controller = 101
    for partition, leader in enumerate((1, 2)):
        replicas = (leader, 3)
        view.of(KafkaView).partitions["orders", partition] = PartitionView(
            1, leader, 0, replicas, replicas
        )
        view.of(KafkaView).shown["orders", partition] = 1
    return view


def drawn_faults(view: View, *offered: str, seeds: int = 200) -> list[Planned]:
    return drawn_at(Moment(view, LAYOUT, offered), STRIKES, seeds)


def drawn_at(moment: Moment, chooser: KafkaFaultChooser, seeds: int = 200) -> list[Planned]:
    drawn = (chooser.draw(Random(seed), moment) for seed in range(seeds))
    return [planned for planned in drawn if isinstance(planned, Planned)]


def test_links_of_a_node_that_is_starting_are_left_alone() -> None:
    found = drawn_faults(begun("broker-2", "controller-3"), *LINKS)
    assert found
    assert all({"broker-2", "controller-3"}.isdisjoint(planned.ends) for planned in found)
    assert "isolate" not in {planned.fault for planned in found}


def test_a_schedule_is_drawn_for_the_shortest_lease() -> None:
    chooser = KafkaFaultChooser(Timing(1, 2, 500, 20_000))
    assert drawn_at(Moment(begun(), LAYOUT, ("kill",)), chooser)


def test_a_node_that_is_starting_may_be_killed_again() -> None:
    killed = {name for p in drawn_faults(begun("broker-2"), "kill") for name in p.victims}
    assert "broker-2" in killed


def test_a_broker_that_lost_its_lease_has_begun_long_ago() -> None:
    view = begun()
    record(
        view,
        "broker-2#1",
        BrokerStateChanged(
            broker_id=2, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
        ),
    )
    assert starting(view, LAYOUT) == frozenset()


def test_links_that_were_healed_just_now_are_left_alone() -> None:
    moment = Moment(begun(), LAYOUT, LINKS, mending=frozenset({"broker-2"}))
    found = [STRIKES.draw(Random(seed), moment) for seed in range(200)]
    assert any(found)
    assert all("broker-2" not in planned.victims for planned in found if planned)
    killable = replace(moment, offered=("kill",))
    killed = [STRIKES.draw(Random(seed), killable) for seed in range(50)]
    assert any("broker-2" in planned.victims for planned in killed if planned)


def test_controllers_links_are_left_alone_while_no_controller_leads() -> None:
    view = begun()
    view.of(KafkaView).active_controller = None
    ends = [planned.ends for planned in drawn_faults(view, *LINKS)]
    assert ends
    assert all(not name.startswith("controller") for several in ends for name in several)


def test_a_controller_that_was_active_in_its_last_process_does_not_lead() -> None:
    """No other one was elected yet, so no node fetches from it, and it gives no broker leave."""
    view = begun()
    view.of(KafkaView).controller_process = "controller-1#1"
    moment = Moment(view, LAYOUT, ("terminate",))
    assert terminated(moment, stops_by_leave=True)
    view.alive.discard("controller-1#1")
    record(
        view,
        "harness",
        ProcessSpawned(
            started="controller-1#2", slot="controller-1", role="controller", node_id=101, pid=2
        ),
    )
    record(view, "controller-1#2", ControllerFollowed(epoch=1, leader=102))
    assert view.of(KafkaView).active_controller == 101
    ends = [planned.ends for planned in drawn_faults(view, *LINKS, "hold")]
    assert ends
    assert all(not name.startswith("controller") for several in ends for name in several)
    assert not terminated(moment, stops_by_leave=True)


def test_brokers_links_are_left_alone_while_a_partition_has_no_leader() -> None:
    view = begun()
    between = [p for p in drawn_faults(view, *LINKS) if p.ends <= {slot.name for slot in BROKERS}]
    assert between
    assert all(planned.ends & {"broker-1", "broker-2"} for planned in between)
    for one in view.of(KafkaView).partitions.values():
        one.leader = -1
    assert all(any("controller" in end for end in p.ends) for p in drawn_faults(view, *LINKS))


def test_a_broker_is_parted_only_from_one_that_it_replicates_from_or_to() -> None:
    """One that was added may share no partition with another."""
    brokers = {slot.name for slot in BROKERS}
    parted = {one.ends for one in drawn_faults(begun(), "partition") if one.ends <= brokers}
    # Each of two partitions has another leader, and broker 3 follows both.
    assert parted == {frozenset(["broker-1", "broker-3"]), frozenset(["broker-2", "broker-3"])}


def test_a_system_may_leave_a_fault_out() -> None:
    moment = Moment(begun(), LAYOUT, ("kill", "pause"))
    chooser = KafkaFaultChooser(TIMING, without=frozenset({"kill"}))
    found = [chooser.draw(Random(seed), moment) for seed in range(50)]
    assert {planned.fault for planned in found if planned} == {"pause"}


def test_a_node_that_needs_a_session_to_start_is_not_paused_meanwhile() -> None:
    moment = Moment(begun("broker-2"), LAYOUT, ("pause",))
    chooser = KafkaFaultChooser(TIMING, needs_session=True)
    found = [chooser.draw(Random(seed), moment) for seed in range(200)]
    assert any(found)
    assert all("broker-2" not in planned.victims for planned in found if planned)
    always = [STRIKES.draw(Random(seed), moment) for seed in range(200)]
    assert any("broker-2" in planned.victims for planned in always if planned)


SERVER = Slot("zookeeper-1", "zookeeper", 201, 9)
WITH_SERVER = Layout((*LAYOUT.slots, SERVER), ())


def over_server(*, serves: bool = True, needs_session: bool = True) -> KafkaFaultChooser:
    """A chooser for a cluster with a server."""
    serving = [SERVER.name] if serves else []
    servers = Servers("zookeeper", lambda view, layout: serving)
    return KafkaFaultChooser(TIMING, servers=servers, needs_session=needs_session)


def drawn_by(chooser: KafkaFaultChooser, view: View, *faults: str, hit: str = "") -> list[Planned]:
    """What is drawn where the server runs, while a fault affects the slot `hit`."""
    spawned = ProcessSpawned(
        started="zookeeper-1#1", slot=SERVER.name, role="zookeeper", node_id=201, pid=1
    )
    record(view, "harness", spawned)
    moment = Moment(view, WITH_SERVER, faults, frozenset({hit} - {""}))
    found = (chooser.draw(Random(seed), moment) for seed in range(300))
    return [planned for planned in found if planned]


def hits_server(planned: Planned) -> bool:
    return SERVER.name in planned.victims


@pytest.mark.parametrize("fault", ["pause", "kill"])
def test_a_server_is_left_alone_while_a_node_that_needs_a_session_starts_or_is_dead(
    fault: str,
) -> None:
    dead = begun()
    dead.alive.discard("broker-2#1")
    assert any(map(hits_server, drawn_by(over_server(), begun(), fault)))
    for view in (begun("broker-2"), dead):
        assert not any(map(hits_server, drawn_by(over_server(), view, fault)))
        heedless = over_server(needs_session=False)
        assert any(map(hits_server, drawn_by(heedless, view, fault)))


@pytest.mark.parametrize("fault", ["terminate", "kill", *sorted(LOSES_DATA)])
def test_a_node_that_needs_a_session_does_not_end_while_a_server_serves_none(fault: str) -> None:
    def ended(chooser: KafkaFaultChooser, hit: str) -> bool:
        drawn = drawn_by(chooser, begun(), fault, hit=hit)
        return any(not hits_server(planned) for planned in drawn)

    assert ended(over_server(), "broker-1")
    assert not ended(over_server(), SERVER.name)
    assert not ended(over_server(serves=False), "broker-1")
    assert ended(over_server(needs_session=False), SERVER.name)


def test_a_broker_without_a_session_is_not_asked_to_end_nor_cut_off_from_a_server() -> None:
    def drawn(view: View, fault: str, *, needs_session: bool = True) -> list[Planned]:
        found = drawn_by(over_server(needs_session=needs_session), view, fault)
        return [one for one in found if fault == "terminate" or SERVER.name in one.ends]

    view = begun()
    lost = BrokerStateChanged(
        broker_id=2, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
    )
    record(view, "broker-2#1", lost)
    for fault in ("terminate", "partition", "slow_link"):
        assert any("broker-2" in one.victims for one in drawn(begun(), fault))
        assert not any("broker-2" in one.victims for one in drawn(view, fault))
        assert any("broker-1" in one.victims for one in drawn(view, fault))
        anyhow = drawn(view, fault, needs_session=False)
        assert any("broker-2" in one.victims for one in anyhow)
    assert any("broker-2" in one.victims for one in drawn_by(over_server(), view, "kill"))


def test_links_to_a_server_that_does_not_serve_are_left_alone() -> None:
    def cut(chooser: KafkaFaultChooser, view: View, hit: str = "") -> bool:
        drawn = drawn_by(chooser, view, "partition", "slow_link", hit=hit)
        return any(SERVER.name in planned.ends for planned in drawn)

    assert cut(over_server(), begun())
    assert not cut(over_server(serves=False), begun())
    assert not cut(over_server(), begun(), SERVER.name)


def test_only_requests_to_leaders_certainly_come_where_servers_keep_the_metadata() -> None:
    followed = {("broker-3", "broker-1"), ("broker-3", "broker-2")}
    for fault in ("hold", "slow_link"):
        drawn = [p for p in drawn_by(over_server(), begun(), fault) if SERVER.name not in p.ends]
        assert {(p.arguments["sources"], p.arguments["targets"]) for p in drawn} == followed
    view = begun()
    view.of(KafkaView).partitions.clear()
    assert not [p for p in drawn_by(over_server(), view, "hold") if not hits_server(p)]


def test_no_request_is_held_while_a_server_does_not_serve() -> None:
    assert drawn_by(over_server(), begun(), "hold")
    assert not drawn_by(over_server(serves=False), begun(), "hold")
    assert not drawn_by(over_server(), begun(), "hold", hit=SERVER.name)


def test_only_links_that_are_in_use_are_cut_where_servers_keep_the_metadata() -> None:
    view = begun()
    view.of(KafkaView).fenced[1] = False
    drawn = drawn_by(over_server(), view, "partition", "cut")
    between = {p.ends for p in drawn if not p.ends & {SERVER.name, "clients"}}
    in_use = [{"broker-3", "broker-1"}, {"broker-3", "broker-2"}, {"controller-1", "broker-1"}]
    assert between == set(map(frozenset, in_use))


def test_a_dead_node_is_not_starting() -> None:
    view = begun("broker-2")
    view.alive.discard("broker-2#1")
    assert starting(view, LAYOUT) == frozenset()


def test_a_cut_between_the_roles_is_between_a_broker_and_the_active_controller() -> None:
    pairs = [planned.ends for planned in drawn_faults(begun(), "cut")]
    roles = {"broker", "controller"}
    mixed = [ends for ends in pairs if {name.split("-")[0] for name in ends} == roles]
    assert mixed
    assert all("controller-1" in ends for ends in mixed)


def test_an_affected_slot_gets_no_second_fault() -> None:
    moment = Moment(begun(), LAYOUT, LINKS, frozenset({"broker-1"}))
    drawn = [STRIKES.draw(Random(seed), moment) for seed in range(200)]
    assert all("broker-1" not in planned.victims for planned in drawn if planned)
    quiet = replace(moment, affected=frozenset())
    assert any(
        "broker-1" in planned.victims
        for planned in (STRIKES.draw(Random(seed), quiet) for seed in range(200))
        if planned
    )


def test_a_slow_link_is_one_that_is_dialled() -> None:
    # 101 leads the quorum, and the others pull.
    slow = [planned.arguments for planned in drawn_faults(begun(), "slow_link")]
    dialled = [a["targets"] for a in slow if str(a["sources"]).startswith("controller")]
    assert slow
    assert set(dialled) == {"controller-1"}


def test_a_slow_link_between_brokers_is_a_followers_to_its_leader() -> None:
    view = begun()
    view.of(KafkaView).partitions["orders", 1] = PartitionView(1, 2, 0, (2, 1), (2, 1))
    slow = [planned.arguments for planned in drawn_faults(view, "slow_link")]
    between = [a for a in slow if str(a["sources"]).startswith("broker")]
    # Either broker leads a partition, and only broker 1 fetches from broker 2.
    followed = {("broker-1", "broker-2"), ("broker-3", "broker-1")}
    assert {(a["sources"], a["targets"]) for a in between} == followed


def test_only_requests_that_certainly_come_are_held() -> None:
    """A follower's fetches from its leader, and any node's from the active controller."""
    view = begun()
    planned = drawn_faults(view, "hold")
    pairs = {(p.arguments["sources"], p.arguments["targets"]) for p in planned}
    to_leaders = {("broker-3", "broker-1"), ("broker-3", "broker-2")}
    nodes = {slot.name for slot in (*CONTROLLERS, *BROKERS)} - {"controller-1"}
    assert pairs == to_leaders | {(name, "controller-1") for name in nodes}
    assert {p.arguments["apis"] for p in planned} == {"Fetch"}
    assert {p.arguments["action"] for p in planned} == {"hold", "drop", "delay"}
    assert all(hold(**p.arguments).arguments() for p in planned)
    assert min(p.for_ms for p in planned) >= 2_000
    view.of(KafkaView).active_controller = None
    without = {p.arguments["targets"] for p in drawn_faults(view, "hold")}
    assert without == {"broker-1", "broker-2"}


def test_no_request_is_held_that_nobody_can_read() -> None:
    sealed = replace(LAYOUT, sealed="TLS")
    drawn = drawn_at(Moment(begun(), sealed, ("hold", "kill")), STRIKES)
    assert {planned.fault for planned in drawn} == {"kill"}
    assert "hold" in {planned.fault for planned in drawn_faults(begun(), "hold", "kill")}


def test_where_connections_log_in_no_held_request_outlives_its_own() -> None:
    layout = replace(LAYOUT, logs_in=True)
    drawn = drawn_at(Moment(begun(), layout, ("hold",)), STRIKES)
    assert {planned.arguments["outlives"] for planned in drawn} == {False}


def test_a_control_request_is_held_and_a_restart_of_the_broker_brings_it_about() -> None:
    moment = Moment(begun(), LAYOUT, ("hold", "kill", "terminate"))
    chooser = KafkaFaultChooser(TIMING, control_requests=True)
    drawn = [one for one in (chooser.draw(Random(n), moment) for n in range(400)) if one]
    control = [one for one in drawn if one.then is not None and one.fault == "hold"]
    restarts: dict[object, set[str]] = {}
    for one in control:
        assert one.then is not None
        assert one.alone
        assert hold(**one.arguments).arguments()
        (broker,) = one.then.victims
        ends = (one.arguments["sources"], one.arguments["targets"])
        (api, *others) = one.arguments["apis"]
        restarts.setdefault((api, len(others)), set()).add(one.then.fault)
        asks = api == "ControlledShutdown"
        assert ends == ((broker, "controller-1") if asks else ("controller-1", broker))
        # At least two of the requests come, to the next process.
        assert one.arguments["skip"] <= (1 if others else 0)
    assert restarts == {
        ("ControlledShutdown", 0): {"terminate"},
        ("LeaderAndIsr", 0): {"kill", "terminate"},
        ("UpdateMetadata", 0): {"kill", "terminate"},
        ("LeaderAndIsr", 2): {"kill", "terminate"},
    }
    busy = replace(moment, affected=frozenset({"broker-3"}))
    for unfit in (busy, replace(moment, offered=("hold",))):
        others = [one for one in (chooser.draw(Random(n), unfit) for n in range(400)) if one]
        held_only = [one for one in others if one.fault == "hold"]
        assert {one.arguments["apis"] for one in held_only} == {"Fetch"}


@pytest.mark.parametrize(
    ("layout", "chooser"),
    [(LAYOUT, STRIKES), (WITH_SERVER, over_server(needs_session=False))],
    ids=["quorum", "zookeeper"],
)
def test_an_id_is_claimed_beside_other_faults(layout: Layout, chooser: KafkaFaultChooser) -> None:
    """The rules know what is forfeited then."""
    moment = Moment(begun(), layout, ("duplicate_id",), affected=frozenset({"broker-3"}))
    drawn = drawn_at(moment, chooser)
    assert {name for planned in drawn for name in planned.victims} == {"broker-1", "broker-2"}
    assert not any(planned.alone for planned in drawn)


def test_a_disk_is_harmed_beside_other_faults() -> None:
    """The rules know what is forfeited then."""
    moment = Moment(begun(), LAYOUT, tuple(LOSES_DATA), affected=frozenset({"broker-3"}))
    drawn = drawn_at(moment, STRIKES, 400)
    assert {one.fault for one in drawn} == LOSES_DATA
    assert not any(one.alone for one in drawn)


def held(view: View) -> View:
    view.of(KafkaView).fenced = {slot.node_id: False for slot in BROKERS}
    return view


def terminated(moment: Moment, *, stops_by_leave: bool) -> set[str]:
    drawn = drawn_at(moment, KafkaFaultChooser(TIMING, stops_by_leave=stops_by_leave))
    return {name for planned in drawn for name in planned.victims if name.startswith("broker")}


@pytest.mark.parametrize(
    ("affected", "ends"),
    [
        ((), True),
        (("broker-1",), True),
        (("controller-2",), True),
        (("controller-1",), False),
        (("controller-2", "controller-3"), False),
    ],
)
def test_a_broker_that_needs_leave_is_asked_to_end_only_while_it_would_get_that(
    affected: tuple[str, ...], ends: bool
) -> None:
    """No fault is healed while it is awaited that the broker ends."""
    moment = Moment(begun(), LAYOUT, ("terminate",), affected=frozenset(affected))
    brokers = {slot.name for slot in BROKERS} - {*affected}
    assert terminated(moment, stops_by_leave=False) == brokers
    assert terminated(moment, stops_by_leave=True) == (brokers if ends else set())
