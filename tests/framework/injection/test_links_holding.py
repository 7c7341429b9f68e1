"""Messages held in real links: by our toxic, through the layer that faults use."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.link_bench import CUT, LAYOUT, ONE_TWO, Bench

from fencepost import HEALTHY, Hold, HoldCounts, UsageError
from fencepost.injection.links import Links
from fencepost.injection.receipts import judge_release
from fencepost.model.clock import poll

FRAMED = replace(LAYOUT, framed=frozenset(link.port for link in LAYOUT.links))
FIVES = Hold((b"5",))


def send(connection: socket.socket, *bodies: bytes) -> None:
    connection.sendall(b"".join(struct.pack(">i", len(body)) + body for body in bodies))


def receive(connection: socket.socket) -> bytes:
    connection.settimeout(5)
    (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(length, socket.MSG_WAITALL)


def await_counts(links: Links, wanted: HoldCounts) -> None:
    assert poll(lambda: links.held(ONE_TWO) == wanted, 5), links.held(ONE_TWO)


def test_a_held_message_leaves_in_its_order_when_it_is_released(bench: Bench) -> None:
    links = bench.links(FRAMED)
    connection = bench.dial(links, ONE_TWO)
    links.hold(ONE_TWO, FIVES)
    send(connection, b"1 before", b"5 held by", b"1 behind")
    assert receive(connection) == b"1 before"
    await_counts(links, HoldCounts(seen=3, matched=1, taken=1, held=1))
    assert links.differences(LAYOUT.links) == []
    links.release(ONE_TWO)
    assert [receive(connection) for _ in range(2)] == [b"5 held by", b"1 behind"]
    await_counts(links, HoldCounts(seen=3, matched=1, taken=1, released=1))
    assert links.differences(LAYOUT.links) == []


def test_a_held_message_outlives_its_connection(bench: Bench) -> None:
    links = bench.links(FRAMED)
    links.hold(ONE_TWO, FIVES)
    with bench.dial(links, ONE_TWO) as connection:
        send(connection, b"5 held by")
        await_counts(links, HoldCounts(seen=1, matched=1, taken=1, held=1))
    await_counts(links, HoldCounts(seen=1, matched=1, taken=1, orphans=1))
    bench.heard.clear()
    links.release(ONE_TWO)
    wanted = HoldCounts(seen=1, matched=1, taken=1, redelivered=1, answered=1)
    await_counts(links, wanted)
    assert bench.heard["broker-2"] == 4 + len(b"5 held by")


def test_a_hold_stays_beside_cuts_and_healing_them(bench: Bench) -> None:
    links = bench.links(FRAMED)
    links.hold(ONE_TWO, FIVES)
    links.apply({ONE_TWO: CUT})
    links.apply({ONE_TWO: HEALTHY})
    assert links.differences(LAYOUT.links) == []
    send(bench.dial(links, ONE_TWO), b"5 held by")
    await_counts(links, HoldCounts(seen=1, matched=1, taken=1, held=1))


def test_a_toxiproxy_that_is_built_anew_holds_as_before(
    bench: Bench, hang: Callable[[str], None]
) -> None:
    links = bench.links(FRAMED)
    links.hold(ONE_TWO, FIVES)
    hang("broker-1")
    assert links.apply({ONE_TWO: CUT}) == ["the toxiproxy of broker-1 hung and was replaced"]
    links.apply({ONE_TWO: HEALTHY})
    send(bench.dial(links, ONE_TWO), b"5 held by")
    lost = "its toxiproxy hung and was replaced: the messages that it held are lost"
    await_counts(links, HoldCounts(seen=1, matched=1, taken=1, held=1, last_error=lost))
    links.release(ONE_TWO)
    await_counts(links, HoldCounts(seen=1, matched=1, taken=1, released=1, last_error=lost))
    assert not judge_release(links.held(ONE_TWO)).true
    links.hold(ONE_TWO, FIVES)
    await_counts(links, HoldCounts())


def test_a_hold_without_sense_changes_nothing(bench: Bench) -> None:
    links = bench.links(FRAMED)
    for wrong in (Hold((b"5",), skip=-1), Hold((b"5",), action="delay"), Hold((), delay_ms=5)):
        with pytest.raises(UsageError, match="not negative, and only a delay"):
            links.hold(ONE_TWO, wrong)
    assert links.holding == ()
    links.hold(ONE_TWO, FIVES)
    with pytest.raises(UsageError, match="broker-1 -> broker-2:9092 holds messages already"):
        links.hold(ONE_TWO, FIVES)


def test_links_without_messages_hold_nothing(bench: Bench) -> None:
    links = bench.links()
    with pytest.raises(UsageError, match="carry no framed messages"):
        links.hold(ONE_TWO, FIVES)
    assert links.held(ONE_TWO) == HoldCounts()
