"""A session by kazoo with a real server, behind a link that is cut, trap by trap."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from time import monotonic

import pytest
from forwarder import Forwarder
from zookeeper_clients import Client
from zookeeper_servers import RunningServer, available, free_port, standalone

from fencepost_clusters.zookeeper.client.port import (
    Children,
    Connected,
    Create,
    Created,
    End,
    Ended,
    Exists,
    Fired,
    Found,
    GetChildren,
    GetData,
    Reason,
    Refused,
    SessionEvent,
    SetData,
    Suspended,
    Unknown,
    Unsent,
    Watch,
    ZnodeChange,
)

pytestmark = [pytest.mark.real, available]

SHORT_MS = 2000
"""Long enough for a busy machine: kazoo sends a ping only after half of it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = standalone(tmp_path_factory.mktemp("zookeeper"))
    yield running
    running.end()


@pytest.fixture
def link(server: RunningServer) -> Iterator[Forwarder]:
    made = Forwarder(("127.0.0.1", free_port()), (server.server.address, server.server.port))
    yield made
    made.close()


@asynccontextmanager
async def clients(*hosts: str, timeout_ms: int = SHORT_MS) -> AsyncIterator[list[Client]]:
    """A connected client of each of these."""
    made = [Client(host, timeout_ms) for host in hosts]
    try:
        for one in made:
            await one.connected()
        yield made
    finally:
        for one in made:
            await one.close()


def host(link: Forwarder) -> str:
    address, port = link.listens
    return f"{address}:{port}"


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(test())


async def gone(observer: Client, path: str) -> None:
    """Waits until a node is deleted, by a watch."""
    found = await observer.ask(Exists(path, watch=True))
    if found != Found(None):
        await observer.wait(lambda: Fired(path, Watch.NODE, ZnodeChange.DELETED) in observer.fired)


def test_a_suspended_session_is_resumed_with_its_ephemerals(
    server: RunningServer, link: Forwarder
) -> None:
    async def test() -> None:
        async with clients(host(link), timeout_ms=30_000) as (one,):
            made = await one.ask(Create("/resumed", ephemeral=True))
            link.set("refuse")
            await one.wait(lambda: Suspended() in one.delivered)
            link.set("pass")
            await one.wait(lambda: isinstance(one.states[-1], Connected))
            first, _, last = one.states
            assert first == last
            assert isinstance(made, Created)
            assert await one.ask(Exists("/resumed")) == Found(made.stat)

    run(test)


def test_watches_are_dropped_with_the_connection_and_can_be_set_again(
    server: RunningServer, link: Forwarder
) -> None:
    async def test() -> None:
        async with clients(host(link), server.host, timeout_ms=30_000) as (one, other):
            await other.ask(Create("/watched"))
            await one.ask(GetData("/watched", watch=True))
            link.set("refuse")
            await one.wait(lambda: Suspended() in one.delivered)
            await other.ask(SetData("/watched", b"1"))
            link.set("pass")
            await one.wait(lambda: isinstance(one.states[-1], Connected))
            await other.ask(SetData("/watched", b"2"))
            await one.ask(GetData("/watched", watch=True))
            assert one.fired == []
            await other.ask(SetData("/watched", b"3"))
            await one.wait(lambda: bool(one.fired))
            assert one.fired == [Fired("/watched", Watch.NODE, ZnodeChange.DATA)]

    run(test)


def test_a_create_during_a_cut_is_never_carried_out_in_a_later_session(
    server: RunningServer, link: Forwarder
) -> None:
    """Without our limit, kazoo waits past the end of the session, and a retry repeats the
    request."""

    async def test() -> None:
        async with clients(host(link), server.host) as (one, observer):
            await one.ask(Create("/registration", ephemeral=True))
            link.set("mute-up")
            number = one.start(Create("/late"))
            assert await one.answer(number) == Unknown()
            # kazoo may have a new connection by now; no data passes through it either.
            assert await one.ask(Create("/later")) in (Unsent(), Unknown())
            await gone(observer, "/registration")
            await one.wait(lambda: isinstance(one.states[-1], Ended))
            link.set("pass")
            async with clients(host(link)) as (next_one,):
                assert await next_one.ask(Exists("/late")) == Found(None)
            assert await one.ask(Create("/latest")) == Unsent()
            for path in ("/late", "/later", "/latest"):
                assert await observer.ask(Exists(path)) == Found(None)

    run(test)


def test_a_session_without_a_connection_is_given_up_before_the_server_can_tell_its_end(
    server: RunningServer, link: Forwarder
) -> None:
    """kazoo learns of the end only from a server, which it may never reach again."""

    async def test() -> None:
        async with clients(host(link)) as (one,):
            link.set("refuse")
            await one.wait(lambda: Suspended() in one.delivered)
            before = monotonic()
            await one.wait(lambda: isinstance(one.states[-1], Ended))
            assert one.states[1:] == [Suspended(), Ended(End.GIVEN_UP)]
            # Not sooner: the server would resume it until then. Clocks of two threads were read.
            assert monotonic() - before > SHORT_MS / 1000 - 0.1

    run(test)


def test_a_session_that_the_server_expired_ends_when_the_link_is_healed(
    server: RunningServer, link: Forwarder
) -> None:
    """The server expires it before its own timer does, which starts when the client notices."""

    async def test() -> None:
        async with clients(host(link), timeout_ms=6000) as (one,), clients(server.host) as (other,):
            await one.ask(Create("/expires", ephemeral=True))
            link.set("mute-up")
            await gone(other, "/expires")
            assert one.states[1:] in ([], [Suspended()])
            link.set("pass")
            await one.wait(lambda: isinstance(one.states[-1], Ended))
            assert one.states[-1] == Ended(End.EXPIRED)
            assert await one.ask(Create("/after")) == Unsent()
            assert await other.ask(Exists("/after")) == Found(None)

    run(test)


def test_answers_and_watch_events_keep_the_order_of_the_connection(server: RunningServer) -> None:
    """A client that reads new data has had the watch event of their change before."""

    async def test() -> None:
        async with clients(server.host, timeout_ms=30_000) as (one,):
            await one.ask(Create("/order"))
            for _ in range(200):
                one.start(GetData("/order", watch=True))
                one.start(SetData("/order", b""))
            last = one.start(GetChildren("/"))
            await one.answer(last)
            events = [type(event).__name__ for event in one.delivered if event not in one.states]
            # Created; then read, fired, set for each round; then the children.
            assert events == ["Answered"] + ["Answered", "Fired", "Answered"] * 200 + ["Answered"]

    run(test)


def test_session_events_come_in_the_loops_thread_and_may_ask_again(
    server: RunningServer, link: Forwarder
) -> None:
    """kazoo calls listeners in the connection's thread, where a request would block it."""

    async def test() -> None:
        threads: set[threading.Thread] = set()
        async with clients(host(link), timeout_ms=30_000) as (one,):

            def deliver(event: SessionEvent) -> None:
                threads.add(threading.current_thread())
                if isinstance(event, Connected):
                    one.start(Exists("/"))

            one.also = deliver
            link.set("refuse")
            await one.wait(lambda: Suspended() in one.delivered)
            link.set("pass")
            await one.wait(lambda: bool(one.answers))
            assert isinstance(one.answers[1], Found)
            assert threads == {threading.current_thread()}

    run(test)


def test_a_session_closes_quickly_while_its_link_is_mute(
    server: RunningServer, link: Forwarder
) -> None:
    async def test() -> None:
        async with clients(host(link)) as (one,):
            link.set("mute")
            before = monotonic()
            await one.close()
            assert monotonic() - before < 5.0
            assert one.states[-1] == Ended(End.CLOSED)

    run(test)


def test_a_closed_session_takes_its_ephemerals_along_at_once(server: RunningServer) -> None:
    async def test() -> None:
        async with clients(server.host, server.host, timeout_ms=30_000) as (one, observer):
            await one.ask(Create("/closed", ephemeral=True))
            await one.close()
            assert await observer.ask(Exists("/closed")) == Found(None)

    run(test)


def test_a_session_that_cannot_be_made_ends_and_says_so(link: Forwarder) -> None:
    async def test() -> None:
        link.set("refuse")
        one = Client(host(link), limit_ms=500)
        await one.wait(lambda: Ended(End.NEVER_MADE) in one.delivered)
        await one.close()

    run(test)


def test_a_chroot_that_does_not_exist_has_no_node(server: RunningServer) -> None:
    async def test() -> None:
        async with clients(f"{server.host}/nowhere") as (one,):
            assert await one.ask(Exists("/")) == Found(None)
            assert await one.ask(Create("/a")) == Refused(Reason.NO_NODE)
        async with clients(server.host) as (root,):
            await root.ask(Create("/somewhere"))
        async with clients(f"{server.host}/somewhere") as (one,):
            made = await one.ask(Create("/a"))
            assert isinstance(made, Created)
            assert made.path == "/a"
            listed = await one.ask(GetChildren("/"))
            assert isinstance(listed, Children)
            assert listed.names == ("a",)

    run(test)
