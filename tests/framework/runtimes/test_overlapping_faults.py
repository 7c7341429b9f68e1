"""Two faults of one link, on each runtime: the second one shows, and each heals alone."""

from __future__ import annotations

import re

import pytest
from tests import echo_node
from tests.echo_run import is_silent, talk

from fencepost import HEALTHY, Link, LinkState, Runtime, one_way, two_way

LINK = Link("broker-1", "broker-2", echo_node.PORT)
THERE, BACK = one_way(["broker-1"], ["broker-2"]), one_way(["broker-2"], ["broker-1"])
BOTH = two_way(["broker-1"], ["broker-2"])


@pytest.mark.parametrize("cut_heals_first", [False, True])
def test_a_cut_over_a_slow_link_shows_and_each_of_them_heals_alone(
    pair: Runtime, cut_heals_first: bool
) -> None:
    assert pair.set_links([LINK], LinkState(latency_ms=80)).true
    cut = pair.apply_cut(BOTH)
    assert cut.true, cut.evidence
    assert "before already" not in cut.evidence
    if cut_heals_first:
        lifted = pair.lift_cut(BOTH)
        assert lifted.true, lifted.evidence
        took = re.search(r"1 link took (\d+) ms or more", lifted.evidence)
        assert took is not None, lifted.evidence
        assert int(took[1]) >= 160
        talk(pair)
        healed = pair.set_links([LINK], HEALTHY)
    else:
        assert pair.set_links([LINK], HEALTHY).true
        assert is_silent(pair, "echo.frame_received", "broker-2")
        healed = pair.lift_cut(BOTH)
    assert healed.true, healed.evidence
    assert "without any toxic" in healed.evidence
    talk(pair)


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_cut_one_way_over_a_cut_the_other_way_shows_and_each_heals_alone(
    pair: Runtime, in_turn: bool
) -> None:
    assert pair.apply_cut(THERE).true
    second = pair.apply_cut(BACK)
    assert second.true, second.evidence
    vanished = re.search(r"(\d+) bytes vanished upstream", second.evidence)
    assert vanished is not None, second.evidence
    assert int(vanished[1]) > 0
    first, last, deaf = (THERE, BACK, "broker-1") if in_turn else (BACK, THERE, "broker-2")
    assert pair.lift_cut(first).true
    assert is_silent(pair, "echo.frame_received", deaf)
    assert pair.lift_cut(last).true
    talk(pair)
