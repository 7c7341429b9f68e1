"""The model and the real server: the same operations, the same answers and watch events.

Sequences run side by side, each below a node of its own. The model gets all requests in the order
in which the server got them, so that even transaction ids are the same. Sessions are closed, expire
and begin between them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from random import Random  # noqa: TID251 - seeded: one seed is one list of sequences
from typing import final

import pytest
from forwarder import Forwarder
from random_operations import SESSIONS, Steps, steps
from zookeeper_clients import Client
from zookeeper_servers import RunningServer, available, free_port, standalone

from fencepost_clusters.zookeeper.client.port import (
    Answer,
    Answered,
    Children,
    Create,
    Created,
    Data,
    DataSet,
    Done,
    Exists,
    Fired,
    Found,
    Reason,
    Refused,
    Request,
    SessionEvent,
    Stat,
    Watch,
    WriteResult,
    ZnodeChange,
)
from fencepost_clusters.zookeeper.simulation.tree import Tree, Watched

pytestmark = [pytest.mark.real, available]

SEED = 1
BATCHES = 2
LONG_MS, SHORT_MS = 60_000, 12_000
"""The shorter one outlasts a stall of a busy machine: a session that ended by it would be another
history than the model's."""
BATCH_MS = 1_000_000
"""How much time of the model a batch takes: more than any timeout."""


@final
class Pair:
    """The server and its model, which are asked the same."""

    def __init__(self, direct: str, through_link: str) -> None:
        self._direct, self._through_link = direct, through_link
        self.tree = Tree()
        self.now_ms = 0
        self.clients: list[Client] = []
        self.ids: list[int] = []
        self._expected: dict[int, list[SessionEvent]] = {}
        self._compared: dict[int, int] = {}
        self._requests: dict[tuple[int, int], Request] = {}
        self.seen: Counter[str] = Counter()

    async def begin(self, index: int) -> None:
        """Begins a session in this place, the last of which can be cut off."""
        last = index == SESSIONS - 1
        timeout_ms = SHORT_MS if last else LONG_MS
        client = Client(self._through_link if last else self._direct, timeout_ms)
        session = await client.connected()
        self.tree.begin(session, timeout_ms, self.now_ms)
        self.clients[index:] = [client, *self.clients[index + 1 :]]
        self.ids[index:] = [session, *self.ids[index + 1 :]]
        self._expected[session] = []
        self._compared[session] = 0

    def start(self, index: int, request: Request) -> int:
        """Asks both."""
        number = self.clients[index].start(request)
        self._requests[self.ids[index], number] = request
        answer, fired = self.tree.request(self.ids[index], request, self.now_ms)
        self.expect(fired)
        self._expected[self.ids[index]].append(Answered(number, answer))
        return number

    def expect(self, fired: Iterable[Watched]) -> None:
        for one in fired:
            if one.session in self._expected:
                self._expected[one.session].append(one.fired)

    async def settle(self) -> None:
        """Lets every session read once more: all watch events come before the answer."""
        for index in range(len(self.clients)):
            await self.clients[index].answer(self.start(index, Exists("/")))

    def compare(self, *, ordered: bool = True) -> None:
        """Compares the events of each session since the last time with the model's."""
        for client, session in zip(self.clients, self.ids, strict=True):
            received = [one for one in client.delivered if isinstance(one, Answered | Fired)]
            since, self._compared[session] = self._compared[session], len(received)
            real = [*map(untimed, received[since:])]
            model = [*map(untimed, self._expected[session][since:])]
            if not ordered:
                real, model = sorted(real, key=repr), sorted(model, key=repr)
            for one, other in zip_longest(real, model):
                number = one.number if isinstance(one, Answered) else 0
                assert one == other, self._requests.get((session, number))
            self.seen.update(name for one in real for name in kinds(one))


def kinds(event: SessionEvent) -> Sequence[str]:
    """The kinds of answers that a test must have seen."""
    match event:
        case Answered(_, Done(results)):
            return ["Done", *map(answer_kind, results)]
        case Answered(_, answer):
            return [answer_kind(answer)]
        case Fired(_, watch, change):
            return [f"{watch} {change}"]
        case _:
            return []


def answer_kind(answer: Answer | WriteResult) -> str:
    return answer.why.name if isinstance(answer, Refused) else type(answer).__name__


def untimed(event: SessionEvent) -> SessionEvent:
    """The same without times of the server's clock."""
    return (
        Answered(event.number, without_times(event.answer))
        if isinstance(event, Answered)
        else event
    )


def without_times(answer: Answer) -> Answer:
    match answer:
        case Created(path, Stat() as stat):
            return Created(path, timeless(stat))
        case DataSet(stat):
            return DataSet(timeless(stat))
        case Found(Stat() as stat):
            return Found(timeless(stat))
        case Data(data, stat):
            return Data(data, timeless(stat))
        case Children(names, stat):
            return Children(names, timeless(stat))
        case Done(results):
            return Done(
                tuple(DataSet(timeless(r.stat)) if isinstance(r, DataSet) else r for r in results)
            )
        case _:
            return answer


def timeless(stat: Stat) -> Stat:
    return replace(stat, ctime_ms=0, mtime_ms=0)


async def run_batch(pair: Pair, sequences: Sequence[Steps]) -> None:
    """All first steps, then all second ones; those of one session at a time, to keep an order."""
    for step in range(max(map(len, sequences))):
        for index in range(SESSIONS):
            numbers = [
                pair.start(index, one[step].request)
                for one in sequences
                if step < len(one) and one[step].session == index
            ]
            if numbers:
                await pair.clients[index].answer(numbers[-1])
        await pair.settle()
        pair.compare()


async def close_one(pair: Pair, index: int) -> None:
    """Closes a session and begins another in its place."""
    await pair.clients[index].close()
    pair.expect(pair.tree.end(pair.ids[index]))
    await pair.begin(index)


async def expire_last(pair: Pair, link: Forwarder, name: str) -> None:
    """Cuts the last session off until the server ends it; begins another in its place."""
    index = SESSIONS - 1
    for place, request in ((index, Create(name, ephemeral=True)), (0, Exists(name, watch=True))):
        await pair.clients[place].answer(pair.start(place, request))
    link.set("mute-up")
    deleted = Fired(name, Watch.NODE, ZnodeChange.DELETED)
    await pair.clients[0].wait(lambda: deleted in pair.clients[0].fired)
    for other in pair.ids[:index]:
        assert pair.tree.hear(other, pair.now_ms + BATCH_MS // 2)
    due = pair.tree.next_expiry_ms()
    assert due is not None
    pair.expect(pair.tree.expire(due))
    assert pair.ids[index] not in pair.tree.sessions
    await pair.clients[index].close()
    link.set("pass")
    await pair.begin(index)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    running = standalone(tmp_path)
    yield running
    running.end()


@pytest.mark.parametrize(
    ("batch", "least"),
    [(1300, 10), pytest.param(5050, 50, marks=pytest.mark.nightly)],
)
def test_the_model_answers_as_the_real_server(
    server: RunningServer, batch: int, least: int
) -> None:
    """Each answer is compared; and each kind of answer was given at least so often."""
    link = Forwarder(("127.0.0.1", free_port()), (server.server.address, server.server.port))
    random = Random(SEED)

    async def test() -> Counter[str]:
        address, port = link.listens
        pair = Pair(server.host, f"{address}:{port}")
        try:
            for index in range(SESSIONS):
                await pair.begin(index)
            for number in range(BATCHES):
                pair.now_ms = number * BATCH_MS
                await run_batch(pair, [steps(f"/{number}-{n}", random) for n in range(batch)])
                await expire_last(pair, link, f"/expires-{number}")
                await close_one(pair, 1)
                await pair.settle()
                pair.compare(ordered=False)
        finally:
            for client in pair.clients:
                with suppress(Exception):
                    await client.close()
        return pair.seen

    try:
        seen = asyncio.run(test())
    finally:
        link.close()
    never_asked = {Reason.BAD_ARGUMENTS, Reason.OTHER}
    possible = {
        *("Created", "Deleted", "DataSet", "Checked", "Found", "Data", "Children", "Done"),
        *(reason.name for reason in Reason if reason not in never_asked),
        *(f"{Watch.NODE} {change}" for change in ZnodeChange if change is not ZnodeChange.CHILDREN),
        *(f"{Watch.CHILDREN} {change}" for change in (ZnodeChange.CHILDREN, ZnodeChange.DELETED)),
    }
    assert possible == {*seen}
    assert min(seen.values()) >= least, seen
