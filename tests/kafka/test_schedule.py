"""Schedules: pure, in order, resolved by the cluster's state, replayed from their record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kafka.kafka_views import kafka_view

from fencepost import Layout, Slot, UsageError, View
from fencepost.runs import schedule as s
from fencepost_clusters.reference.cluster import ReferenceQuorum
from fencepost_kafka import PartitionView, Role
from fencepost_kafka.faults.selectors import select

LAYOUT = Layout(
    (
        Slot("controller-1", Role.CONTROLLER, 1, 1),
        Slot("broker-2", Role.BROKER, 2, 2),
        Slot("broker-3", Role.BROKER, 3, 3),
        Slot("broker-3-duplicate", Role.BROKER, 3, 4, duplicate=True),
        Slot("clients", Role.CLIENT, 0, 5),
    ),
    (),
)


def resolve(arguments: Mapping[str, object], seen: View) -> Mapping[str, object] | None:
    return s.resolve(arguments, seen, s.selecting(ReferenceQuorum(), LAYOUT))


def view(leader: int, isr: tuple[int, ...] = (2, 3), controller: int | None = 1) -> View:
    known = PartitionView(offset=1, leader=leader, leader_epoch=1, isr=isr, replicas=(2, 3))
    return kafka_view(active_controller=controller, partitions={("orders", 0): known})


injections = st.lists(
    st.builds(
        s.Injection,
        at_ms=st.integers(0, 50),
        fault=st.just("cut"),
        arguments=st.just({}),
        for_ms=st.none() | st.integers(0, 50),
    ),
    max_size=6,
)


asked = st.lists(
    st.builds(
        s.Asked,
        at_ms=st.integers(0, 50),
        operation=st.just("create_topic"),
        arguments=st.just({}),
    ),
    max_size=6,
)


@given(injections, asked)
def test_actions_are_in_order_and_no_fault_heals_before_it_is_injected(
    planned: list[s.Injection], administration: list[s.Asked]
) -> None:
    both = s.Schedule(injections=tuple(planned), administration=tuple(administration))
    actions = s.actions(both)
    assert [a.at_ms for a in actions] == sorted(a.at_ms for a in actions)
    for number, injection in enumerate(planned):
        mine = [a.kind for a in actions if a.number == number and a.kind is not s.Kind.ASK]
        heals = [] if injection.for_ms is None else [s.Kind.HEAL]
        assert mine == [s.Kind.INJECT, *heals]
    asks = [a for a in actions if a.kind is s.Kind.ASK]
    assert sorted(a.number for a in asks) == list(range(len(administration)))
    for ask in asks:
        later = actions[actions.index(ask) + 1 :]
        before = actions[: actions.index(ask)]
        assert all(a.at_ms >= ask.at_ms for a in later)
        assert all(a.at_ms < ask.at_ms or a.kind is s.Kind.ASK for a in before)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("@leader/orders/0", "broker-2"),
        ("@follower/orders/0", "broker-3"),
        ("@active-controller", "controller-1"),
        ("@controllers", "controller-1"),
        ("@brokers", ["broker-2", "broker-3"]),
        ("@other-broker/1", "broker-3"),
    ],
)
def test_a_selector_is_resolved_when_the_injection_is_due(selector: str, names: object) -> None:
    assert resolve({"node": selector, "n": 1}, view(2)) == {"node": names, "n": 1}


@pytest.mark.parametrize(
    ("selector", "seen"),
    [
        ("@leader/orders/0", view(-1)),
        ("@leader/orders/1", view(2)),
        ("@follower/orders/0", view(2, isr=(2,))),
        ("@active-controller", view(2, controller=None)),
        ("@other-broker/0", view(2, controller=None)),
        ("@other-controller/0", view(2, controller=None)),
        ("@other-controller/0", view(2)),
        ("@other-broker/2", view(2)),
    ],
)
def test_a_selector_without_a_target_yet_is_not_known(selector: str, seen: View) -> None:
    assert resolve({"node": selector}, seen) is None


@pytest.mark.parametrize("selector", ["@leadre/orders/0", "@leader/orders", "@leader/orders/x"])
def test_a_selector_that_does_not_exist_is_refused(selector: str) -> None:
    with pytest.raises(UsageError, match=r"no selector named '@lead.*did you mean '@leader'"):
        resolve({"node": selector}, view(2))


def test_the_active_controller_is_no_other_broker() -> None:
    brokers = [Slot(f"broker-{n}", Role.BROKER, n, n, also=((Role.CONTROLLER, n),)) for n in (2, 3)]
    layout = Layout(tuple(brokers), ())
    assert select("@other-broker/0", view(2, controller=2), layout) == ["broker-3"]
    assert select("@other-broker/0", view(2, controller=3), layout) == ["broker-2"]


def test_the_active_controller_is_no_other_controller() -> None:
    slots = (Slot(f"controller-{n}", Role.CONTROLLER, 100 + n, n) for n in (1, 2, 3))
    layout = Layout(tuple(slots), ())
    for active, others in ((101, (2, 3)), (102, (1, 3)), (103, (1, 2))):
        found = [
            select(f"@other-controller/{n}", view(2, controller=active), layout) for n in (0, 1)
        ]
        assert found == [[f"controller-{n}"] for n in others]
    assert select("@other-controller/2", view(2, controller=101), layout) == []


def test_a_record_comes_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    injection = s.Injection(
        at_ms=5,
        fault="bounce",
        arguments={"node": "broker-2", "after_ms": 30},
        for_ms=30,
        fault_id="bounce-1",
        targets=("broker-2#1",),
        receipt=True,
    )
    s.write(path, s.Schedule(injections=(injection,)))
    assert s.read(path) == s.Schedule(injections=(injection,))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no schedule"),
        ('{"injections": [{"fault": "cut"}]}', "is no schedule"),
        ('{"strikes": [{"fault": "cut"}]}', "is no schedule"),
        ('{"injections": [], "version": 99}', "newer than"),
    ],
)
def test_a_file_that_is_not_a_schedule_is_refused(
    tmp_path: Path, content: str | None, says: str
) -> None:
    path = tmp_path / "schedule.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=says):
        s.read(path)
