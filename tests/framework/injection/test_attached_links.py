"""Proxies of somebody else's: what is ours, and what others have changed."""

from __future__ import annotations

from msgspec.structs import replace

from fencepost.injection.attached_links import as_shown, changed
from fencepost.injection.attached_server import ShownProxy, ShownToxic
from fencepost.injection.toxics import toxics
from fencepost.model.runtime import LinkState

THEIRS = ShownToxic("slow", "latency", "downstream", 1.0, '{"latency": 5}')
OURS = ShownToxic("fencepost-cut-upstream", "timeout", "upstream", 1.0, '{"timeout": 0}')
FOUND = ShownProxy("first", "127.0.0.1:1", "127.0.0.1:2", True, (THEIRS,))


def test_a_cut_is_a_toxic_that_every_server_has() -> None:
    (made,) = (as_shown(one) for one in toxics(LinkState(cut_upstream=True)))
    assert made == OURS
    (slow,) = {as_shown(one).name for one in toxics(LinkState(latency_ms=3))} - {
        "fencepost-latency-downstream"
    }
    assert slow == "fencepost-latency-upstream"


def test_toxics_of_ours_are_no_change_of_others() -> None:
    assert changed(FOUND, replace(FOUND, toxics=(OURS, THEIRS))) == ""
    assert replace(FOUND, toxics=(OURS, THEIRS)).theirs == FOUND


def test_what_others_change_is_named() -> None:
    assert changed(FOUND, None) == "its proxy was removed"
    assert changed(FOUND, replace(FOUND, enabled=False)) == "its proxy was disabled"
    assert "another upstream address" in changed(FOUND, replace(FOUND, upstream="127.0.0.1:3"))
    assert changed(FOUND, replace(FOUND, toxics=())) == "somebody changed its toxics: none now"
