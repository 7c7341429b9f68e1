"""The simulated network against its promises: order on a connection, cuts that swallow, breaks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random  # noqa: TID251 - seeded: hypothesis chooses the seed

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.history.run_end import NEVER_NS
from fencepost.model.runtime import HEALTHY, LinkState
from fencepost.model.system.topology import Layout, Link, Slot
from fencepost.runtimes.simulated.network import NetworkProfile, SimulatedNetwork
from fencepost.runtimes.simulated.virtual_time import Agenda
from fencepost_kafka import Role

NAMES = ("a", "b", "c")
PORT = 9
MS = 1_000_000
LAYOUT = Layout(
    tuple(Slot(name, Role.BROKER, n, n) for n, name in enumerate(NAMES, 1)),
    tuple(Link(one, other, PORT) for one in NAMES for other in NAMES if one != other),
)
PAIRS = st.sampled_from([(link.source, link.target) for link in LAYOUT.links])
SIDES = st.sampled_from([0, 1])


@dataclass(eq=False)
class Process:
    """An end of connections, which notes what reaches it."""

    slot_name: str
    accepted: list[int] = field(default_factory=list)
    got: dict[int, list[int]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    after_the_end: int = 0

    def listens(self, port: int) -> bool:
        return port == PORT

    def connected(self, connection: int, port: int) -> None:
        self.accepted.append(connection)

    def arrived(self, connection: int, message: object) -> None:
        assert isinstance(message, int)
        self.after_the_end += connection in self.reasons
        self.got.setdefault(connection, []).append(message)

    def cut_off(self, connection: int, reason: str) -> None:
        assert connection not in self.reasons, "notified twice"
        self.reasons[connection] = reason


@dataclass
class Dialled:
    """The model's state of a connection: its ends, and the messages sent to each. `whole`: no cut
    has crossed it and neither end closed it, so that everything must arrive. `closed`: by its own
    ends."""

    ends: tuple[str, str]
    sent: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    whole: bool = True
    closed: bool = False
    crossed: bool = False


class Networking(RuleBasedStateMachine):
    """Three processes that dial, send, hang up; cuts, slow links, and time."""

    @initialize(seed=st.integers(0, 1000), storm=st.booleans())
    def begin(self, seed: int, storm: bool) -> None:
        self.agenda = Agenda()
        self.processes = {name: Process(name) for name in NAMES}
        profile = NetworkProfile(
            most_delay_ns=5 * MS if storm else MS, slow_one_in=10 if storm else 200
        )
        self.network = SimulatedNetwork(
            LAYOUT, self.agenda, Random(seed), self.processes.get, profile
        )
        self.dialled: dict[int, Dialled] = {}
        self.cuts: Counter[tuple[str, str]] = Counter()
        self.slowed: dict[tuple[str, str], LinkState] = {}
        self.messages = 0

    @rule(pair=PAIRS)
    def dial(self, pair: tuple[str, str]) -> None:
        number = self.network.dial(self.processes[pair[0]], pair[1], PORT)
        assert number not in self.dialled
        self.dialled[number] = Dialled(pair)
        self._cross()

    @precondition(lambda self: self.dialled)
    @rule(data=st.data(), side=SIDES, count=st.integers(1, 4))
    def send(self, data: st.DataObject, side: int, count: int) -> None:
        """Sends to the end of that side, from the other end, if that has the connection."""
        number, one = self._any(data)
        sender = self.processes[one.ends[1 - side]]
        if side == 0 and number not in sender.accepted:
            return
        for _ in range(count):
            self.messages += 1
            self.network.send(sender, number, self.messages)
            if not one.closed and not sender.reasons.get(number):
                one.sent[side].append(self.messages)

    @precondition(lambda self: self.dialled)
    @rule(data=st.data(), side=SIDES)
    def hang_up(self, data: st.DataObject, side: int) -> None:
        number, one = self._any(data)
        process = self.processes[one.ends[side]]
        if side == 0 or number in process.accepted:
            self.network.hang_up(process, number)
            one.closed, one.whole = True, False

    @precondition(lambda self: self.dialled)
    @rule(data=st.data(), back=st.booleans())
    def cut(self, data: st.DataObject, back: bool) -> None:
        """Cuts one direction of a dialled connection: other links show little."""
        _, one = self._any(data)
        pair = one.ends[::-1] if back else one.ends
        self.cuts[pair] += 1
        self._bring()
        self._cross()

    @precondition(lambda self: +self.cuts)
    @rule(data=st.data())
    def lift(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(sorted(+self.cuts)))
        self.cuts[pair] -= 1
        self._bring()
        if not self.cuts[pair]:
            self._lifted({pair})

    @rule()
    def heal(self) -> None:
        lifted = set(+self.cuts)
        self.cuts.clear()
        self.slowed.clear()
        self._bring()
        self._lifted(lifted)

    @rule(pair=PAIRS, latency_ms=st.integers(0, 50), rate_kb=st.sampled_from([0, 20, 1000]))
    def slow(self, pair: tuple[str, str], latency_ms: int, rate_kb: int) -> None:
        """Messages keep their order at any latency and rate, and after a slow link is healed."""
        self.slowed[pair] = LinkState(latency_ms=latency_ms, rate_kb=rate_kb)
        self._bring()

    @rule(steps=st.integers(1, 20))
    def pass_time(self, steps: int) -> None:
        for _ in range(steps):
            if not self.agenda.due_by(NEVER_NS):
                return
            before = {n: {k: len(v) for k, v in p.got.items()} for n, p in self.processes.items()}
            self.agenda.step()
            self._nothing_through_cuts(before)

    @rule()
    def come_to_rest(self) -> None:
        """With nothing in flight, everything due has arrived, and every break was reported."""
        while self.agenda.due_by(NEVER_NS):
            self.agenda.step()
        for number, one in self.dialled.items():
            if one.whole:
                for side in (0, 1):
                    got = self.processes[one.ends[side]].got.get(number, [])
                    assert got == one.sent[side], (number, one)
                    assert number not in self.processes[one.ends[side]].reasons

    @invariant()
    def what_arrives_is_in_order_and_was_sent(self) -> None:
        for number, one in getattr(self, "dialled", {}).items():
            for side in (0, 1):
                got = self.processes[one.ends[side]].got.get(number, [])
                assert got == sorted(set(got))
                assert set(got) <= set(one.sent[side])
                assert self.processes[one.ends[side]].after_the_end == 0

    def _any(self, data: st.DataObject) -> tuple[int, Dialled]:
        number = data.draw(st.sampled_from(sorted(self.dialled)))
        return number, self.dialled[number]

    def _bring(self) -> None:
        """Each link into the state that the cuts and its own slowness make."""
        for link in LAYOUT.links:
            there, back = (link.source, link.target), (link.target, link.source)
            state = replace(
                self.slowed.get(there, HEALTHY),
                cut_upstream=self.cuts[there] > 0,
                cut_downstream=self.cuts[back] > 0,
            )
            self.network.apply({link: state})
            assert self.network.state(link) == state

    def _is_cut(self, one: Dialled) -> bool:
        source, target = one.ends
        return self.cuts[source, target] > 0 or self.cuts[target, source] > 0

    def _cross(self) -> None:
        for one in self.dialled.values():
            if self._is_cut(one):
                one.whole, one.crossed = False, True

    def _lifted(self, pairs: set[tuple[str, str]]) -> None:
        """A connection that a cut crossed, and that no cut crosses any more, breaks for both its
        ends."""
        now_ns = self.agenda.now_ns
        while self.agenda.due_by(now_ns):
            self.agenda.step()
        for number, one in self.dialled.items():
            touched = {one.ends, one.ends[::-1]} & pairs
            if touched and not self._is_cut(one) and not one.closed:
                dialler, target = (self.processes[name] for name in one.ends)
                assert number in dialler.reasons
                assert number in target.reasons or number not in target.accepted
                one.closed = True

    def _nothing_through_cuts(self, before: dict[str, dict[int, int]]) -> None:
        for number, one in self.dialled.items():
            for side, towards in ((1, one.ends), (0, one.ends[::-1])):
                name = one.ends[side]
                got = len(self.processes[name].got.get(number, []))
                if self.cuts[towards] > 0:
                    assert got == before[name].get(number, 0)


TestNetworking = Networking.TestCase
TestNetworking.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, derandomize=True
)
