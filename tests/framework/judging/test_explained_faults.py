"""Faults in explanations: what they did, their heals, and those that struck an earlier process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import Struct
from tests.framework.judging.test_explain import why

from fencepost import (
    Authority,
    Cause,
    Change,
    FaultHealed,
    FaultInjected,
    NodeStarted,
    ProcessExited,
    ProcessResumed,
    ProcessSpawned,
    Scope,
    slot_scope,
)
from fencepost.testing import HistoryBuilder


class BecameMaster(Struct, frozen=True, tag="redis.became_master"):
    """A program that writes no events of ours is observed by its log."""

    node: str

    def authority(self) -> tuple[Authority, ...]:
        return (Authority("master", Change.GAINED, node=self.node),)

    def sentence(self) -> str:
        return f"{self.node} becomes a master"


class Appended(Struct, frozen=True, tag="redis.appended"):
    number: int

    def sentence(self) -> str:
        return f"has appended {self.number}"


def spawn(h: HistoryBuilder, process: str) -> None:
    slot = process.partition("#")[0]
    h.add("harness", ProcessSpawned(started=process, slot=slot, role="redis", node_id=3, pid=1))


def strike(h: HistoryBuilder, fault_id: str, target: str) -> None:
    fault, node = fault_id.partition("-")[0], target.partition("#")[0]
    body = FaultInjected(
        fault_id=fault_id,
        fault=fault,
        targets=(target,),
        receipt=True,
        evidence="it stopped",
        arguments=f'{{"node":"{node}"}}',
    )
    h.add("harness", body)


def heal(h: HistoryBuilder, fault_id: str) -> None:
    h.add("harness", FaultHealed(fault_id=fault_id, receipt=True, evidence="it goes on"))


def test_a_process_that_was_resumed_and_acts_again_is_explained_by_the_heal() -> None:
    h = HistoryBuilder()
    spawn(h, "redis-1#1")
    strike(h, "pause-1", "redis-1#1")
    heal(h, "pause-1")
    lines = why(h, h.add("redis-1#1", Appended(7))).lines()
    assert [line.split("s  ", 1)[1] for line in lines] == [
        "harness: pause redis-1 began (pause-1): it stopped",
        "harness: pause-1 was healed: it goes on",
        "redis-1#1: has appended 7  <- this broke it",
    ]


def test_a_fault_that_struck_an_earlier_process_of_the_slot_is_shown() -> None:
    """It was killed before what it had taken was stored, and another one was killed later."""
    h = HistoryBuilder()
    spawn(h, "redis-3#2")
    spawn(h, "redis-2#1")
    taken = h.add("redis-3#2", Appended(7))
    strike(h, "kill-11", "redis-3#2")
    heal(h, "kill-11")
    spawn(h, "redis-3#3")
    strike(h, "kill-12", "redis-2#1")
    read = h.add("redis-2#1", Appended(8))
    lines = why(h, read, taken).lines()
    assert [number for number in ("kill-11", "kill-12") if any(number in one for one in lines)] == [
        "kill-11",
        "kill-12",
    ]


def test_where_nothing_says_what_it_came_from_nothing_may_not_have_been_known() -> None:
    h = HistoryBuilder()
    spawn(h, "redis-1#1")
    spawn(h, "redis-3#1")
    h.add("sentinel-2#1", BecameMaster("redis-3"))
    promoted = h.add("redis-3#1", BecameMaster("redis-3"))
    found = why(h, h.add("redis-1#1", Appended(7)), promoted)
    assert not any("may not have known" in line for line in found.lines())


def test_a_process_knows_its_own_events_though_others_are_linked() -> None:
    h = HistoryBuilder()
    spawn(h, "redis-1#1")
    asked = h.add("clients/a#1", Appended(1))
    proof = h.add("redis-1#1", Appended(2), Cause(asked.process, asked.node_seq))
    own = h.add("redis-1#1", BecameMaster("redis-1"))
    other = h.add("redis-3#1", BecameMaster("redis-3"))
    read = h.add("clients/reader#1", BecameMaster("redis-3"))
    found = why(h, read, proof, own, other)
    assert found.offender == "redis-1#1"
    known = {step.event.ref: step.known for step in found.steps}
    assert known[own.ref]


class Promoted(Struct, frozen=True, tag="redis.promoted"):
    """A watcher reports which node is the master now."""

    node: str
    epoch: int

    def authority(self) -> tuple[Authority, ...]:
        return (
            Authority("master", Change.GAINED, self.epoch, holder=None, node=self.node, wide=True),
        )

    def sentence(self) -> str:
        return f"promoted {self.node} in epoch {self.epoch}"


class Missed(Struct, frozen=True, tag="redis.missed"):
    def concerns(self) -> tuple[str, ...]:
        return ("master",)

    def sentence(self) -> str:
        return "misses 7"


def run(h: HistoryBuilder, process: str, node_id: int) -> None:
    spawn(h, process)
    h.add(process, NodeStarted(role="redis", node_id=node_id))


def test_a_loss_that_the_last_reading_finds_is_explained_by_the_cut_that_turned_the_authority() -> (
    None
):
    """The master was cut off while it took the write, and deposed; later it was paused, and its
    successor killed, which has nothing to do with the loss."""
    h = HistoryBuilder()
    for number in (1, 2, 3):
        run(h, f"redis-{number}#1", number)
    h.add("sentinel-1#1", Promoted("redis 3", 1))
    strike(h, "cut-1", "redis-3")
    taken = h.add("redis-3#1", Appended(7))
    for sentinel in (1, 2, 3):  # each of them reports the same
        h.add(f"sentinel-{sentinel}#1", Promoted("redis 2", 2))
    heal(h, "cut-1")
    strike(h, "pause-2", "redis-3#1")
    heal(h, "pause-2")
    strike(h, "kill-3", "redis-2#1")
    heal(h, "kill-3")
    run(h, "redis-2#2", 2)
    read = h.add("clients/reader-1#1", Missed())
    lines = [line.split("s  ", 1)[1] for line in why(h, read, taken).lines()]
    assert lines[:5] == [
        "sentinel-1#1: promoted redis 3 in epoch 1",
        "harness: cut redis-3 began (cut-1): it stopped",
        "redis-3#1: has appended 7",
        "sentinel-1#1: promoted redis 2 in epoch 2",
        "harness: cut-1 was healed: it goes on",
    ]
    assert not any("began as redis" in line and "redis-2#2" not in line for line in lines)


def isolates(h: HistoryBuilder, fault_id: str, one: str, others: Sequence[str]) -> None:
    pairs = [pair for other in others for pair in ((one, other), (other, one))]
    body = FaultInjected(
        fault_id=fault_id,
        fault="isolate",
        targets=(one, *others),
        receipt=True,
        evidence="7 links did not answer",
        arguments=f'{{"node":"{one}"}}',
        directions=tuple(f"{source} -> {target}" for source, target in pairs),
        effects=tuple(f"severs {source} -> {target}" for source, target in pairs),
    )
    h.add("harness", body)


def cluster(h: HistoryBuilder) -> None:
    for number in (1, 2, 3):
        run(h, f"redis-{number}#1", number)
    h.add("sentinel-1#1", Promoted("redis 1", 0))


def shown(lines: Sequence[str]) -> list[str]:
    """The ids of the faults that began, in the order of their lines."""
    return [line.partition("(")[2].partition(")")[0] for line in lines if " began (" in line]


def test_after_two_turns_the_fault_is_shown_that_kept_the_last_holder_from_the_first() -> None:
    """redis-2 was isolated while redis-1 took the writes, which redis-3 has; then redis-1 was
    paused, redis-3 led, and was ended: redis-2 lacks them. What strikes sentinels and redis-1
    later has nothing to do with it."""
    h = HistoryBuilder()
    cluster(h)
    isolates(h, "isolate-1", "redis-2", ("redis-1", "redis-3", "sentinel-1"))
    first = h.add("redis-1#1", Appended(7))
    last = h.add("redis-1#1", Appended(8))
    strike(h, "pause-2", "redis-1#1")
    h.add("sentinel-1#1", Promoted("redis 3", 1))
    heal(h, "isolate-1")
    strike(h, "terminate-3", "redis-3#1")
    h.add("sentinel-1#1", Promoted("redis 2", 2))
    heal(h, "pause-2")
    isolates(h, "isolate-4", "sentinel-1", ("redis-1", "redis-2", "redis-3"))
    read = h.add("clients/reader-1#1", Missed())
    lines = why(h, read, first, last).lines()
    assert shown(lines)[:3] == ["isolate-1", "pause-2", "terminate-3"]
    promoted = [line.partition("promoted ")[2] for line in lines if "promoted" in line]
    assert promoted == ["redis 3 in epoch 1", "redis 2 in epoch 2"]


def test_a_holder_that_is_back_when_it_is_deposed_was_struck_before() -> None:
    h = HistoryBuilder()
    cluster(h)
    strike(h, "kill-1", "redis-1#1")
    heal(h, "kill-1")
    run(h, "redis-1#2", 1)
    taken = h.add("redis-1#2", Appended(7))
    h.add("sentinel-1#1", Promoted("redis 2", 1))
    read = h.add("clients/reader-1#1", Missed())
    assert shown(why(h, read, taken).lines()) == ["kill-1"]


def test_of_several_faults_the_one_that_took_most_from_the_holder_moved_the_authority() -> None:
    """A bystander that is isolated is parted from the holder, too."""
    h = HistoryBuilder()
    cluster(h)
    taken = h.add("redis-1#1", Appended(7))
    isolates(h, "isolate-1", "redis-1", ("redis-2", "redis-3", "sentinel-1"))
    isolates(h, "isolate-2", "redis-3", ("redis-1", "redis-2", "sentinel-1"))
    h.add("sentinel-1#1", Promoted("redis 2", 1))
    heal(h, "isolate-1")
    heal(h, "isolate-2")
    read = h.add("clients/reader-1#1", Missed())
    assert shown(why(h, read, taken).lines())[0] == "isolate-1"


def test_a_fault_that_begins_right_before_a_late_report_moved_nothing() -> None:
    """The failover had begun when the master was not heard for 2 s; a watcher tells of it a second
    later, 3 ms after a sentinel was isolated."""
    h = HistoryBuilder()
    cluster(h)
    taken = h.add("redis-1#1", Appended(7))
    isolates(h, "isolate-1", "redis-1", ("redis-2", "redis-3", "sentinel-1"))
    h.after(2_000)
    heal(h, "isolate-1")
    h.after(1_500)
    isolates(h, "isolate-3", "sentinel-3", ("redis-1", "redis-2", "redis-3"))
    h.add("sentinel-1#1", Promoted("redis 2", 1))
    read = h.add("clients/reader-1#1", Missed())
    assert shown(why(h, read, taken).lines())[0] == "isolate-1"


@pytest.mark.parametrize("beside", ["duplicate_id-2", "slow_link-2"])
def test_a_second_process_or_a_slow_link_moved_nothing_where_the_holder_was_cut_off(
    beside: str,
) -> None:
    h = HistoryBuilder()
    cluster(h)
    taken = [h.add("redis-1#1", Appended(number)) for number in range(8)]
    if beside == "duplicate_id-2":
        strike(h, beside, "redis-1#1")
    else:
        ways = ("redis-1 -> redis-2", "redis-2 -> redis-1")
        body = FaultInjected(
            fault_id=beside,
            fault="slow_link",
            targets=("redis-1", "redis-2"),
            receipt=True,
            evidence="it took 300 ms",
            directions=ways,
            effects=tuple(f"slows {way}" for way in ways),
        )
        h.add("harness", body)
    h.after(9_000)
    isolates(h, "isolate-1", "redis-1", ("redis-2", "redis-3", "sentinel-1"))
    h.after(3_000)
    h.add("sentinel-1#1", Promoted("redis 2", 1))
    read = h.add("clients/reader-1#1", Missed())
    # The proof leaves room for one fault.
    assert shown(why(h, read, *taken).lines()) == ["isolate-1"]


def test_what_came_after_the_named_turn_explains_nothing() -> None:
    """A paused master ran for a moment, in which it acknowledged; what struck others later pushed
    that out."""
    h = HistoryBuilder()
    cluster(h)
    strike(h, "pause-1", "redis-1#1")
    first = h.add("redis-1#1", Appended(7))
    h.add("harness", ProcessResumed(resumed="redis-1#1", from_ns=0, ran_ns=431))
    last = h.add("redis-1#1", Appended(8))
    turn = h.add("sentinel-1#1", Promoted("redis 3", 1))
    heal(h, "pause-1")
    for number, node in ((3, "redis-2#1"), (5, "redis-1#1"), (6, "redis-3#1")):
        strike(h, f"kill-{number}", node)
        heal(h, f"kill-{number}")
        h.add("sentinel-1#1", Promoted("redis 2", number))
    read = h.add("clients/reader-1#1", Missed())
    lines = why(h, read, first, last, turn).lines()
    assert shown(lines) == ["pause-1"]
    assert any("was resumed" in line for line in lines)
    assert not any("in epoch 3" in line or "in epoch 6" in line for line in lines)


def test_a_node_that_stood_still_as_the_turn_came_could_not_be_the_next_holder() -> None:
    """It had the only copy."""
    h = HistoryBuilder()
    cluster(h)
    taken = [h.add("redis-1#1", Appended(number)) for number in range(5)]
    strike(h, "pause-10", "redis-3#1")
    strike(h, "pause-11", "redis-1#1")
    isolates(h, "isolate-12", "sentinel-1", ("redis-1", "redis-2", "redis-3"))
    turn = h.add("sentinel-1#1", Promoted("redis 2", 1))
    read = h.add("clients/reader-1#1", Missed())
    assert {"pause-10", "pause-11"} <= set(shown(why(h, read, *taken, turn).lines()))


def test_a_second_process_is_no_fault_of_its_nodes_first_one() -> None:
    h = HistoryBuilder()
    cluster(h)
    body = FaultInjected(
        fault_id="duplicate_id-1",
        fault="duplicate_id",
        targets=("redis-1#1", "redis-1-duplicate#1"),
        receipt=True,
        evidence="it runs",
        effects=("doubles redis-1",),
    )
    h.add("harness", body)
    heal(h, "duplicate_id-1")
    taken = h.add("redis-1#1", Appended(7))
    isolates(h, "isolate-2", "redis-1", ("redis-2", "redis-3", "sentinel-1"))
    h.add("sentinel-1#1", Promoted("redis 2", 1))
    read = h.add("clients/reader-1#1", Missed())
    assert shown(why(h, read, taken).lines()) == ["isolate-2"]


def test_what_moved_the_last_turn_is_shown_and_not_what_moved_one_between() -> None:
    h = HistoryBuilder()
    cluster(h)
    taken = h.add("redis-1#1", Appended(7))
    for number, holder in enumerate((2, 3, 1), 1):
        held = "redis-1#1" if number == 1 else f"redis-{number}#1"
        strike(h, f"pause-{number}", held)
        h.after(3_000).add("sentinel-1#1", Promoted(f"redis {holder}", number))
        heal(h, f"pause-{number}")
        h.after(60_000)
    read = h.add("clients/reader-1#1", Missed())
    found = shown(why(h, read, taken).lines())
    assert {"pause-1", "pause-3"} <= set(found)
    assert "pause-2" not in found


def test_a_fault_is_shown_at_the_time_when_it_began() -> None:
    """Its event is written once it was measured; what was lost because of it came before that."""
    h = HistoryBuilder()
    cluster(h)
    began_ns = h.now_ns
    h.after(1_000)
    taken = h.add("redis-1#1", Appended(7))
    h.after(1_000)
    body = FaultInjected(
        fault_id="kill-1",
        fault="kill",
        targets=("redis-1#1",),
        receipt=True,
        evidence="it ended",
        began_at_ns=began_ns,
    )
    h.add("harness", body)
    h.add("sentinel-1#1", Promoted("redis 2", 1))
    read = h.add("clients/reader-1#1", Missed())
    lines = why(h, read, taken).lines()
    assert [("kill-1" in line, "appended" in line) for line in lines[1:3]] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize(
    "server", [Scope("redis", "3"), Scope("server", "redis-3"), Scope("slot", "redis-3")]
)
def test_a_node_that_a_client_reported_is_named_by_its_scope_or_its_slot(server: Scope) -> None:
    """Its own events are not in the proof, and a fault that struck it is."""
    h = HistoryBuilder()
    run(h, "redis-3#1", 3)
    strike(h, "kill-1", "redis-3#1")
    heal(h, "kill-1")
    run(h, "redis-3#2", 3)
    read = h.add("clients/reader-1#1", Appended(7))
    lines = why(h, read, server=server).lines()
    assert shown(lines) == ["kill-1"]


def test_a_crash_is_over_once_the_slot_has_its_next_process() -> None:
    """What deposed the holder later is the cut."""
    h = HistoryBuilder()
    cluster(h)
    ended = ProcessExited(ended="redis-1#1", exit_code=1, signal=0, expected=False)
    h.add("harness", ended)
    run(h, "redis-1#2", 1)
    h.add("sentinel-1#1", Promoted("redis 1", 1))
    taken = h.add("redis-1#2", Appended(7))
    isolates(h, "isolate-1", "redis-1", ("redis-2", "redis-3", "sentinel-1"))
    h.add("sentinel-1#1", Promoted("redis 2", 2))
    heal(h, "isolate-1")
    read = h.add("clients/reader-1#1", Missed())
    assert shown(why(h, read, taken).lines()) == ["isolate-1"]


class Switched(Struct, frozen=True, tag="redis.switched"):
    """A watcher whose log names no epoch."""

    node: str

    def authority(self) -> tuple[Authority, ...]:
        return (Authority("master", Change.GAINED, holder=None, node=self.node, wide=True),)

    def sentence(self) -> str:
        return f"switched to {self.node}"


def test_a_gain_without_an_epoch_that_several_tell_is_one_turn() -> None:
    """Three sentinels tell of each, late by as long as they were cut off."""
    h = HistoryBuilder()
    for number in (1, 2, 3):
        run(h, f"redis-{number}#1", number)
    h.add("sentinel-1#1", Switched("redis 1"))
    taken = h.add("redis-1#1", Appended(7))
    isolates(h, "isolate-1", "redis-1", ("redis-2", "redis-3", "sentinel-1"))
    h.add("sentinel-1#1", Switched("redis 2"))
    isolates(h, "isolate-2", "redis-2", ("redis-1", "redis-3", "sentinel-2"))
    heal(h, "isolate-2")
    h.add("sentinel-2#1", Switched("redis 2"))
    h.add("sentinel-3#1", Switched("redis 2"))
    heal(h, "isolate-1")
    strike(h, "kill-3", "redis-2#1")
    h.add("sentinel-2#1", Switched("redis 1"))
    h.add("sentinel-1#1", Switched("redis 1"))
    read = h.add("clients/reader-1#1", Missed())
    lines = why(h, read, taken).lines()
    switched = [line.partition("s  ")[2] for line in lines if "switched" in line]
    assert switched == [
        "sentinel-1#1: switched to redis 1",
        "sentinel-1#1: switched to redis 2",
        "sentinel-2#1: switched to redis 1",
    ]


class Heard(Promoted, frozen=True, tag="redis.heard"):
    """A client hears a watcher name the master, which that watcher tells itself, too."""

    def sentence(self) -> str:
        return f"heard of {self.node} in epoch {self.epoch}"


def test_two_kinds_that_tell_of_one_gain_in_one_epoch_are_one_turn() -> None:
    h = HistoryBuilder()
    cluster(h)
    h.add("sentinel-1#1", Promoted("redis 1", 1))
    taken = h.add("clients/writer#1", Appended(7))
    strike(h, "kill-1", "redis-1#1")
    h.add("sentinel-1#1", Promoted("redis 2", 2))
    h.add("clients/observer#1", Heard("redis 2", 2))
    lines = why(h, h.add("clients/reader-1#1", Missed()), taken).lines()
    assert any("promoted redis 2" in line for line in lines)
    assert not any("heard of redis 2" in line for line in lines)


@pytest.mark.parametrize(("later_ms", "explains"), [(2_000, True), (30_000, False)])
def test_clients_may_be_told_something_by_a_holder_that_was_deposed_right_before(
    later_ms: int, explains: bool
) -> None:
    """It was paused, did not know that another had become the master, and answered. What came long
    after is told by the next holder."""
    h = HistoryBuilder()
    cluster(h)
    h.add("sentinel-1#1", Promoted("redis 1", 1))
    strike(h, "pause-1", "redis-1#1")
    h.add("sentinel-1#1", Promoted("redis 2", 2))
    h.after(later_ms)
    told = h.add("clients/writer#1", Appended(7))
    heal(h, "pause-1")
    h.after(60_000)
    strike(h, "kill-2", "redis-2#1")
    h.add("sentinel-1#1", Promoted("redis 3", 3))
    lines = why(h, h.add("clients/reader-1#1", Missed()), told).lines()
    assert ("pause-1" in shown(lines)) is explains
    assert "kill-2" in shown(lines)


class Read(Struct, frozen=True, tag="redis.read"):
    """Of the list itself, and not of who holds it."""

    def concerns(self) -> tuple[str, ...]:
        return ("partition list-0",)

    def sentence(self) -> str:
        return "misses 7"


def test_over_what_nobody_holds_a_wide_authority_turned() -> None:
    """A ready-made rule states the list, and the system has one master of all lists."""
    h = HistoryBuilder()
    cluster(h)
    taken = h.add("clients/writer-1#1", Appended(7))
    isolates(h, "isolate-1", "redis-1", ("redis-2", "redis-3", "sentinel-1"))
    h.add("sentinel-1#1", Promoted("redis 2", 1))
    heal(h, "isolate-1")
    strike(h, "pause-2", "redis-3#1")
    read = h.add("clients/reader-1#1", Read())
    lines = why(h, read, taken, partition=Scope("partition", "list-0")).lines()
    assert [line.partition("promoted ")[2] for line in lines if "promoted" in line] == [
        "redis 1 in epoch 0",
        "redis 2 in epoch 1",
    ]
    assert shown(lines)[0] == "isolate-1"


def test_what_clients_report_of_no_slot_is_explained_by_the_newest_faults() -> None:
    """No event has authority at all."""
    h = HistoryBuilder()
    for number in (1, 2):
        run(h, f"redis-{number}#1", number)
    taken = h.add("clients/writer-1#1", Appended(7))
    strike(h, "wipe-1", "redis-1#1")
    strike(h, "pause-2", "redis-2#1")
    heal(h, "pause-2")
    read = h.add("clients/reader-1#1", Read())
    assert shown(why(h, read, taken).lines()) == ["wipe-1"]


def test_of_many_turns_the_first_and_the_last_are_shown() -> None:
    """The first holder lost then what it had taken; what the last one lacks was missed."""
    h = HistoryBuilder()
    cluster(h)
    taken = h.add("redis-1#1", Appended(7))
    for epoch, node in enumerate((2, 3, 1, 2), 1):
        h.add("sentinel-1#1", Promoted(f"redis {node}", epoch))
    read = h.add("clients/reader-1#1", Missed())
    lines = why(h, read, taken).lines()
    promoted = [line.partition("in epoch ")[2] for line in lines if "promoted" in line]
    assert {"1", "4"} <= {*promoted}


def test_the_late_report_that_the_stated_server_has_it_lost_nothing() -> None:
    """It was the holder already as it took the write; the next turn took it away."""
    h = HistoryBuilder()
    cluster(h)
    taken = h.add("clients/writer-1#1", Appended(7))
    h.add("sentinel-1#1", Promoted("redis 2", 1))
    strike(h, "kill-1", "redis-2#1")
    h.add("sentinel-1#1", Promoted("redis 3", 2))
    strike(h, "kill-2", "redis-3#1")
    h.add("sentinel-1#1", Promoted("redis 1", 3))
    read = h.add("clients/reader-1#1", Missed())
    lines = why(h, read, taken, server=slot_scope("redis-2")).lines()
    assert shown(lines)[:2] == ["kill-1", "kill-2"]
    promoted = [line.partition("in epoch ")[2] for line in lines if "promoted" in line]
    assert {"2", "3"} <= {*promoted}


def test_of_three_turns_each_is_shown() -> None:
    """The loss may be any of them: a middle one, where the next holder was a stale one."""
    h = HistoryBuilder()
    cluster(h)
    first, last = h.add("redis-1#1", Appended(7)), h.add("redis-1#1", Appended(8))
    for epoch, node in enumerate((2, 3, 2), 1):
        strike(h, f"kill-{epoch}", f"redis-{node}#1")
        h.add("sentinel-1#1", Promoted(f"redis {node}", epoch))
    read = h.add("clients/reader-1#1", Missed())
    lines = why(h, read, first, last).lines()
    promoted = [line.partition("in epoch ")[2] for line in lines if "promoted" in line]
    assert {"1", "2", "3"} <= {*promoted}
