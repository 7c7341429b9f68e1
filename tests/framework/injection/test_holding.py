"""Holding messages in simulated links, against what the toxic of real links does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - seeded

import pytest

from fencepost import HEALTHY, Hold, HoldCounts, Layout, Link, LinkState, Slot, UsageError
from fencepost.history.run_end import NEVER_NS
from fencepost.injection.network import Network
from fencepost.runtimes.simulated.network import NetworkProfile, SimulatedNetwork
from fencepost.runtimes.simulated.prober import SimulatedProber
from fencepost.runtimes.simulated.virtual_time import Agenda

PORT = 9
LINK, BACK = Link("a", "b", PORT), Link("b", "a", PORT)
LAYOUT = Layout(
    (Slot("a", "node", 1, 1), Slot("b", "node", 2, 2)), (LINK, BACK), framed=frozenset({PORT})
)
FIVES = Hold((b"5",))


@dataclass(eq=False)
class Process:
    """An end of connections. It notes what reaches it, and as a target answers each message."""

    slot_name: str
    bench: Bench
    got: list[bytes] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)

    def listens(self, port: int) -> bool:
        return port == PORT

    def connected(self, connection: int, port: int) -> None:
        pass

    def arrived(self, connection: int, message: object) -> None:
        assert isinstance(message, bytes)
        self.got.append(message)
        if self.slot_name == "b":
            self.bench.network.send(self, connection, b"answer")

    def cut_off(self, connection: int, reason: str) -> None:
        self.ended.append(connection)


@dataclass
class Bench:
    """Two processes and their network; answers are no messages."""

    agenda: Agenda = field(default_factory=Agenda)

    def __post_init__(self) -> None:
        self.a, self.b = Process("a", self), Process("b", self)
        self.living: dict[str, Process] = {"a": self.a, "b": self.b}
        self.network = SimulatedNetwork(
            layout=LAYOUT,
            agenda=self.agenda,
            draw=Random(1),
            living=self.living.get,
            profile=NetworkProfile(),
            frame=lambda message, port: None if message == b"answer" else message,  # type: ignore[return-value]
        )
        prober = SimulatedProber(self.network, self.agenda, lambda port: b"probe", self.pass_time)
        self.links = Network(
            LAYOUT, self.network, prober, lambda slot: slot in self.living, wait=prober.wait
        )
        self.connection = self.network.dial(self.a, "b", PORT)

    def send(self, *messages: bytes) -> None:
        for message in messages:
            self.network.send(self.a, self.connection, message)
        self.rest()

    def pass_time(self, until_ns: int, enough: Callable[[], bool]) -> None:
        while not enough() and self.agenda.due_by(until_ns):
            self.agenda.step()
        self.agenda.rest_until(self.agenda.now_ns if enough() else until_ns)

    def rest(self) -> None:
        """Lets time pass until no action is due."""
        while self.agenda.due_by(NEVER_NS):
            self.agenda.step()

    @property
    def counts(self) -> HoldCounts:
        return self.links.held(LINK)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_messages_behind_a_held_message_wait_and_all_leave_in_order(bench: Bench) -> None:
    bench.links.hold(LINK, FIVES)
    bench.send(b"1", b"5", b"2", b"3")
    assert bench.b.got == [b"1"]
    assert bench.counts == HoldCounts(seen=4, matched=1, taken=1, held=1)
    receipt = bench.links.release(LINK)
    bench.rest()
    assert receipt.true
    assert receipt.evidence == "4 messages seen, 1 matched, 1 taken: 1 released"
    assert bench.b.got == [b"1", b"5", b"2", b"3"]
    assert bench.a.got == [b"answer"] * 4


def test_later_messages_overtake_a_held_one_where_they_may(bench: Bench) -> None:
    bench.links.hold(LINK, Hold((b"5",), overtake=True))
    bench.send(b"5", b"2")
    assert bench.b.got == [b"2"]
    bench.links.release(LINK)
    assert bench.b.got == [b"2", b"5"]


def test_the_first_ones_after_those_skipped_are_chosen_over_all_connections(bench: Bench) -> None:
    bench.links.hold(LINK, Hold((b"5",), skip=1, first=2, action="drop"))
    for message in (b"5a", b"5b", b"5c", b"5d"):
        bench.connection = bench.network.dial(bench.a, "b", PORT)
        bench.send(message)
    assert bench.b.got == [b"5a", b"5d"]
    assert bench.counts == HoldCounts(seen=4, matched=4, taken=2, dropped=2)


def test_a_delayed_message_comes_late_and_keeps_its_place(bench: Bench) -> None:
    began_ns = bench.agenda.now_ns
    bench.links.hold(LINK, Hold((b"5",), action="delay", delay_ms=400))
    bench.send(b"5", b"2")
    assert bench.b.got == [b"5", b"2"]
    assert bench.agenda.now_ns - began_ns >= 400_000_000
    assert bench.counts == HoldCounts(seen=2, matched=1, taken=1, released=1)


def test_a_message_is_chosen_by_its_contents(bench: Bench) -> None:
    bench.links.hold(LINK, Hold((b"5",), containing=(b"orders",)))
    bench.send(b"5 payments", b"5 orders")
    assert bench.b.got == [b"5 payments"]


def test_a_message_outlives_its_connection_and_reaches_a_restarted_target(bench: Bench) -> None:
    bench.links.hold(LINK, Hold((b"5",), first=0))
    bench.send(b"5a", b"2", b"5b")
    bench.network.gone(bench.b)
    bench.rest()
    assert bench.a.ended == [bench.connection]
    assert bench.counts == HoldCounts(seen=3, matched=2, taken=2, orphans=2)
    restarted = bench.living["b"] = Process("b", bench)
    receipt = bench.links.release(LINK)
    bench.rest()
    assert receipt.true
    assert restarted.got == [b"5a", b"5b"]
    assert bench.a.got == []
    assert bench.counts == HoldCounts(seen=3, matched=2, taken=2, redelivered=2, answered=2)
    assert len(restarted.ended) == 1, "the connection over which they came stays open"


def test_a_message_is_lost_where_nothing_listens_at_the_release(bench: Bench) -> None:
    bench.links.hold(LINK, FIVES)
    bench.send(b"5")
    bench.network.gone(bench.b)
    del bench.living["b"]
    receipt = bench.links.release(LINK)
    assert not receipt.true
    assert receipt.evidence.endswith("1 taken: 1 lost")


def test_a_message_that_may_not_outlive_its_connection_is_dropped_with_it(bench: Bench) -> None:
    bench.links.hold(LINK, Hold((b"5",), outlives=False))
    bench.send(b"5")
    bench.network.hang_up(bench.a, bench.connection)
    assert bench.counts == HoldCounts(seen=1, matched=1, taken=1, dropped=1)
    assert bench.links.release(LINK).true
    assert bench.counts == HoldCounts(seen=1, matched=1, taken=1, dropped=1)
    assert bench.b.got == []


def test_the_other_direction_and_other_links_pass(bench: Bench) -> None:
    bench.links.hold(BACK, FIVES)
    bench.send(b"5")
    assert bench.b.got == [b"5"]
    assert bench.a.got == [b"answer"]
    assert bench.links.held(BACK) == HoldCounts()


def test_healing_all_links_releases_what_they_hold(bench: Bench) -> None:
    bench.links.hold(LINK, FIVES)
    bench.send(b"5")
    bench.links.heal()
    assert bench.b.got == [b"5"]


def test_a_cut_drops_messages_that_are_released_into_it(bench: Bench) -> None:
    bench.links.hold(LINK, FIVES)
    bench.send(b"5")
    bench.network.apply({LINK: LinkState(cut_upstream=True)})
    bench.links.release(LINK)
    assert bench.b.got == []


def test_a_link_holds_once_at_a_time_and_anew_after_its_release(bench: Bench) -> None:
    bench.links.hold(LINK, FIVES)
    with pytest.raises(UsageError, match="a -> b:9 holds messages already"):
        bench.links.hold(LINK, FIVES)
    bench.links.release(LINK)
    assert bench.links.release(LINK).true
    bench.links.hold(LINK, FIVES)
    bench.network.apply({LINK: HEALTHY})
    bench.send(b"5")
    assert bench.counts.held == 1


def test_links_without_messages_hold_nothing(bench: Bench) -> None:
    network = SimulatedNetwork(
        Layout(LAYOUT.slots, LAYOUT.links), Agenda(), Random(1), lambda slot: None, NetworkProfile()
    )
    with pytest.raises(UsageError, match="a -> b:9 holds nothing"):
        network.hold(LINK, FIVES)
    with pytest.raises(UsageError, match="there is no link a -> c:9"):
        bench.links.hold(Link("a", "c", PORT), FIVES)
