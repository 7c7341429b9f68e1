"""The waits of a change of links, with links and answers that are made up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from fencepost import UsageError
from fencepost.injection.links import Bytes
from fencepost.injection.network import QUICK_MS, Network
from fencepost.injection.probes import ProbeAnswer
from fencepost.injection.receipts import is_cut
from fencepost.injection.toxics import DOWNSTREAM, UPSTREAM
from fencepost.model.runtime import HEALTHY, LinkState, Receipt
from fencepost.model.system.topology import Layout, Link, Slot, one_way
from fencepost_kafka import Role

LINK = Link("broker-1", "broker-2", 9)
LAYOUT = Layout(
    tuple(Slot(f"broker-{n}", Role.BROKER, n, n) for n in (1, 2)),
    (LINK,),
)
BACK = Link("broker-2", "broker-1", 9)
UNASKED = Link("broker-1", "broker-2", 2888)
SECOND, ANOTHER = (Link("broker-1", name, 9) for name in ("broker-2-duplicate", "broker-3"))
WITH_OTHERS = Layout(
    tuple(
        Slot(name, Role.BROKER, node_id, index)
        for index, (name, node_id) in enumerate(
            {"broker-1": 1, "broker-2": 2, "broker-2-duplicate": 2, "broker-3": 3}.items(), 1
        )
    ),
    (LINK, SECOND, ANOTHER),
)
WITH_UNASKED = replace(LAYOUT, links=(LINK, UNASKED), unasked=frozenset({2888}))


@dataclass
class MadeUp:
    """One link's toxiproxy, and the answers through it: each answer takes the next of the given
    times. Through a cut none arrives, and sent bytes are counted as dropped after a long enough
    wait."""

    takes_ms: list[float]
    vanishes_after_s: float = 0
    states: dict[Link, LinkState] = field(
        default_factory=lambda: dict.fromkeys((LINK, BACK, UNASKED, SECOND, ANOTHER), HEALTHY)
    )
    unused: Collection[Link] = ()
    silent_s: list[float] = field(default_factory=list)
    counted: int = 0
    silent: bool = False
    """Nothing ever answers."""
    mute: Collection[Link] = ()
    """Links that never answer."""

    def state(self, link: Link) -> LinkState:
        return self.states[link]

    def apply(self, wanted: Mapping[Link, LinkState]) -> Sequence[str]:
        self.states.update(wanted)
        return ()

    def bytes_passed(self, links: Sequence[Link]) -> Mapping[tuple[Link, str], Bytes]:
        self.counted += max(self.silent_s, default=0) >= self.vanishes_after_s
        return {
            (link, stream): Bytes(self.counted)
            for link in links
            for stream in (UPSTREAM, DOWNSTREAM)
        }

    def differences(self, links: Sequence[Link]) -> Sequence[str]:
        return ()

    def ask(self, asked: Mapping[Link, tuple[float, int]]) -> Mapping[Link, ProbeAnswer]:
        answers = {}
        for link, (patience_s, _) in asked.items():
            cut = self.silent or link in self.mute or is_cut(self.states[link])
            if cut:
                self.silent_s.append(patience_s)
            answers[link] = ProbeAnswer(not cut, patience_s * 1000 if cut else self.takes_ms.pop(0))
        return answers

    past = 0

    def direct(self, links: Sequence[Link]) -> Mapping[Link, int]:
        return dict.fromkeys(links, self.past) if self.past else {}

    def open_connections(self, links: Iterable[Link]) -> Mapping[Link, int]:
        return {link: int(link not in self.unused) for link in links}


def cut(made_up: MadeUp) -> Receipt:
    network = Network(LAYOUT, made_up, made_up, lambda slot: True)
    return network.apply_cut(one_way(["broker-1"], ["broker-2"]))


def silence_s(takes_ms: list[float]) -> float:
    """How long a cut link must stay silent if answers took that long before."""
    made_up = MadeUp(takes_ms)
    receipt = cut(made_up)
    assert receipt.true, receipt.evidence
    assert not takes_ms
    (silent,) = made_up.silent_s
    return silent


def test_a_cut_is_silent_for_longer_than_an_answer_takes() -> None:
    assert silence_s([100]) > 0.3
    assert silence_s([QUICK_MS]) > 3 * QUICK_MS / 1000


def test_a_node_that_stalled_is_asked_again_before_it_is_cut_off() -> None:
    assert silence_s([1500, 900, 5]) < 0.2


def test_a_node_that_is_always_slow_is_cut_off_too() -> None:
    assert silence_s([1500, 1500, 1500, 1500]) > 4.5


def test_a_node_that_stalls_after_the_cut_is_given_more_time() -> None:
    made_up = MadeUp([5], vanishes_after_s=1)
    receipt = cut(made_up)
    assert receipt.true, receipt.evidence
    short, long = made_up.silent_s
    assert short < 0.2
    assert long > 1


def test_a_cut_in_which_nothing_ever_vanishes_has_no_receipt() -> None:
    receipt = cut(MadeUp([5], vanishes_after_s=60))
    assert not receipt.true
    assert "no byte was seen to vanish upstream" in receipt.evidence


@pytest.mark.parametrize("link", [SECOND, ANOTHER])
def test_a_second_process_that_answers_nobody_is_not_asked_for_a_receipt(link: Link) -> None:
    """The cluster has refused it. Of any other node, silence before the cut spoils the receipt."""
    made_up = MadeUp([5, 5], mute=(link,))
    network = Network(WITH_OTHERS, made_up, made_up, lambda slot: True, wait=at_once)
    both = one_way(["broker-1"], ["broker-2", link.target])
    receipts = network.apply_cut(both), network.lift_cut(both)
    refused = link is SECOND
    assert [one.true for one in receipts] == [refused, refused], receipts
    assert all(("broker-2-duplicate answers nobody" in one.evidence) is refused for one in receipts)


def at_once(holds: Callable[[], bool], limit_s: float, every_s: float) -> bool:
    """A wait that is over before anything happens."""
    return holds()


def test_a_probe_that_nothing_ever_answered_is_refused_where_it_may_not_fit() -> None:
    made_up = MadeUp([], silent=True)
    cut = one_way(["broker-1"], ["broker-2"])
    network = Network(LAYOUT, made_up, made_up, lambda slot: True, wait=at_once)
    assert "nothing answered before" in network.apply_cut(cut).evidence
    network = Network(
        LAYOUT, MadeUp([], silent=True), made_up, lambda slot: True, unanswered="no", wait=at_once
    )
    with pytest.raises(UsageError, match="no"):
        network.apply_cut(cut)


def test_a_probe_that_was_answered_once_fits() -> None:
    made_up = MadeUp([5, 5])
    network = Network(LAYOUT, made_up, made_up, lambda slot: True, unanswered="no", wait=at_once)
    assert network.set_links([LINK], HEALTHY).true
    made_up.silent = True
    assert not network.apply_cut(one_way(["broker-1"], ["broker-2"])).true


def test_links_that_are_set_together_wait_for_a_connection_through_any_of_them() -> None:
    made_up = MadeUp([5, 5, 200, 210], unused=[BACK])

    def holds_at_once(holds: Callable[[], bool], limit_s: float, every_s: float) -> bool:
        assert holds()
        return True

    layout = replace(LAYOUT, links=(LINK, BACK))
    network = Network(layout, made_up, made_up, lambda slot: True, wait=holds_at_once)
    receipt = network.set_links([LINK, BACK], LinkState(latency_ms=100))
    assert receipt.true, receipt.evidence
    assert "2 links took 200 ms or more to answer" in receipt.evidence


def test_every_link_that_is_set_together_must_answer_late_enough() -> None:
    made_up = MadeUp([5, 5, 200, 10])
    network = Network(replace(LAYOUT, links=(LINK, BACK)), made_up, made_up, lambda slot: True)
    receipt = network.set_links([LINK, BACK], LinkState(latency_ms=100))
    assert not receipt.true
    assert "broker-2 -> broker-1:9: an answer took 10.0 ms" in receipt.evidence


def test_a_link_that_is_not_always_listened_on_changes_unasked() -> None:
    made_up = MadeUp([5])
    network = Network(WITH_UNASKED, made_up, made_up, lambda slot: True)
    receipt = network.apply_cut(one_way(["broker-1"], ["broker-2"]))
    assert receipt.true, receipt.evidence
    assert "1 links that could not be asked were set too" in receipt.evidence
    assert all(made_up.states[link].cut_upstream for link in (LINK, UNASKED))


def test_a_change_of_such_a_link_alone_cannot_be_measured() -> None:
    network = Network(WITH_UNASKED, (made_up := MadeUp([])), made_up, lambda slot: True)
    receipt = network.set_links([UNASKED], LinkState(cut_upstream=True))
    assert not receipt.true
    assert "port 2888 at some times only" in receipt.evidence


def test_a_node_that_dials_the_other_itself_is_not_cut_off_by_its_links() -> None:
    made_up = MadeUp([5, 5])
    made_up.past = 1
    network = Network(LAYOUT, made_up, made_up, lambda slot: True)
    broken = one_way(["broker-1"], ["broker-2"])
    receipt = network.apply_cut(broken)
    assert not receipt.true
    assert "a connection of broker-1 passes no link" in receipt.evidence
    assert network.lift_cut(broken).true


def test_connections_past_other_links_are_named_in_the_evidence_and_afterwards() -> None:
    made_up = MadeUp([5, 5])
    made_up.past = 1
    network = Network(replace(LAYOUT, links=(LINK, BACK)), made_up, made_up, lambda slot: True)
    assert network.bypassing() == ()
    receipt = network.set_links([LINK], LinkState(latency_ms=1))
    said = "a connection of broker-2 passes no link, and dials the address of broker-1 itself"
    assert receipt.evidence.endswith(f"; {said}")
    assert said in network.bypassing()
