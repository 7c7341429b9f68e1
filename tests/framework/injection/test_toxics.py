"""Toxics: only valid toxics are sent, since toxiproxy does not refuse invalid ones."""

from __future__ import annotations

import pytest

from fencepost import HEALTHY, LinkState, UsageError
from fencepost.injection.toxics import Toxic, toxics


def test_a_healthy_link_has_no_toxic() -> None:
    assert toxics(HEALTHY) == frozenset()


@pytest.mark.parametrize(
    ("state", "stream"),
    [
        (LinkState(cut_upstream=True), "upstream"),
        (LinkState(cut_downstream=True), "downstream"),
    ],
)
def test_a_cut_is_a_timeout_toxic_of_zero_in_its_direction(state: LinkState, stream: str) -> None:
    assert toxics(state) == {Toxic("cut", stream, ())}


def test_delay_and_rate_hold_each_way_with_every_attribute_named() -> None:
    made = toxics(LinkState(latency_ms=20, jitter_ms=5, rate_kb=64))
    assert made == {
        Toxic("latency", "upstream", (("jitter", 5), ("latency", 20))),
        Toxic("latency", "downstream", (("jitter", 5), ("latency", 20))),
        Toxic("bandwidth", "upstream", (("rate", 64),)),
        Toxic("bandwidth", "downstream", (("rate", 64),)),
    }
    assert len({toxic.name for toxic in made}) == len(made)


@pytest.mark.parametrize(
    "state",
    [LinkState(latency_ms=-1), LinkState(jitter_ms=-5), LinkState(rate_kb=-1)],
    ids=str,
)
def test_negative_delays_and_rates_are_refused(state: LinkState) -> None:
    with pytest.raises(UsageError, match="not -"):
        toxics(state)


@pytest.mark.parametrize(
    ("kind", "stream", "attributes", "says"),
    [
        ("slicer", "upstream", (), "no toxic 'slicer'"),  # without its size it crashes the server
        ("reset_peer", "upstream", (("timeout", 0),), "no toxic 'reset_peer'"),
        ("latency", "upstream", (("latnecy", 5), ("jitter", 0)), "exactly latency, jitter"),
        ("latency", "upstream", (("latency", 5),), "exactly latency, jitter"),
        ("cut", "downstraem", (), "not 'downstraem'"),
        ("bandwidth", "upstream", (("rate", 0),), "from 1"),  # 0 blocks the server's API for 10 s
        ("latency", "upstream", (("latency", 1.5), ("jitter", 0)), "whole number"),
        ("latency", "upstream", (("latency", True), ("jitter", 0)), "whole number"),
    ],
)
def test_values_that_toxiproxy_would_misread_silently_are_refused(
    kind: str, stream: str, attributes: tuple[tuple[str, int], ...], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        Toxic(kind, stream, attributes)
