"""The pieces of the plugin, each by itself: no process is started here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import Struct

from fencepost import Event, NodeStarted, RunEnd, Slot
from fencepost.testing import HistoryBuilder, kit
from fencepost_acme.events import PeerChanged, ServerStarted, TakeBegan, TakeEnded
from fencepost_acme.log_parser import AcmeLogParser
from fencepost_acme.observer import ServerObserved, observed
from fencepost_acme.rules import TokensGrow
from fencepost_acme.server import VERSION
from fencepost_acme.system import Acme, version_of

SERVER, OTHER, CLIENT = "server-1", "server-2", "clients/taker-1#1"
LOG = (
    "2026-11-28T01:02:03.123456+00:00 ready, newest token 7",
    "2026-11-28T01:02:03.223456+00:00 peer server-2 is silent",
    "2026-11-28T01:02:03.323456+00:00 stopping",
)


@pytest.mark.parametrize(
    "sample",
    [
        ServerStarted(server=SERVER, token=7),
        PeerChanged(server=SERVER, peer=OTHER, answers=True),
        ServerObserved(server=SERVER, run="f00", token=7),
        TakeBegan(operation="taker-1-0", server=SERVER),
        TakeEnded(operation="taker-1-0", server=SERVER, outcome="ok", token=8),
        TakeEnded(operation="taker-1-0", server=SERVER, outcome="unknown", error="timed out"),
    ],
)
def test_an_event_kind_conforms(sample: Struct) -> None:
    kit.check_event_kind(type(sample), sample)


def test_the_log_parser_conforms() -> None:
    expected = (
        NodeStarted(role="server", node_id=1),
        ServerStarted(server=SERVER, token=7),
        PeerChanged(server=SERVER, peer=OTHER, answers=False),
    )
    kinds, slot = (ServerStarted, PeerChanged), Slot(SERVER, "server", 1, 1)
    kit.check_log_parser(Acme(), slot, LOG, expected, kinds=kinds)
    assert AcmeLogParser(slot).parse("Traceback (most recent call last):") == ()


def test_the_program_says_its_version() -> None:
    assert Acme().version == VERSION
    assert version_of(("no-such-program",)) == ""


def test_the_observer_reads_a_status_and_nothing_else() -> None:
    seen = ServerObserved(server=SERVER, run="f00", token=7)
    assert observed(SERVER, "STATUS f00 7") == seen
    assert observed(SERVER, "ERROR unknown request") is None
    assert observed(SERVER, "") is None


def history(*tokens: int, taken_after_restart: bool = True) -> tuple[Sequence[Event], RunEnd]:
    """A client takes these tokens one after the other; the server restarts before the last one."""
    made = HistoryBuilder()
    for number, token in enumerate(tokens):
        last = number == len(tokens) - 1
        if last:
            made.add(f"{SERVER}#2", ServerStarted(server=SERVER, token=0))
        if not last or taken_after_restart:
            name = f"taker-1-{number}"
            made.add(CLIENT, TakeBegan(operation=name, server=SERVER))
            made.add(CLIENT, TakeEnded(operation=name, server=SERVER, outcome="ok", token=token))
    return made.events(), made.end()


def test_the_rule_finds_a_token_that_was_given_out_twice_and_nothing_else() -> None:
    kit.check_rule(
        TokensGrow(),
        violation=history(1, 2, 2),
        near_miss=history(1, 2, 9),
        undecided=history(1, 2, 3, taken_after_restart=False),
    )


def test_an_answer_that_another_one_overtook_breaks_no_promise() -> None:
    made = HistoryBuilder()
    for name in ("a", "b"):
        made.add(CLIENT, TakeBegan(operation=name, server=SERVER))
    made.add(CLIENT, TakeEnded(operation="b", server=SERVER, outcome="ok", token=2))
    made.add(CLIENT, TakeEnded(operation="a", server=SERVER, outcome="ok", token=1))
    assert kit.findings_of(TokensGrow(), made.events(), made.end()) == []
