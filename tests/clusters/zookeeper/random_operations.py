"""Random sequences of operations on ZooKeeper: each below a node of its own, by three sessions."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random  # noqa: TID251 - seeded: one seed is one list of sequences

from fencepost_clusters.zookeeper.client.port import (
    ANY,
    Check,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    Request,
    SetData,
    Write,
)

SESSIONS = 3
_LENGTHS = range(2, 5)
_VERSIONS = (ANY, ANY, 0, 1, 2)


@dataclass(frozen=True, slots=True)
class Step:
    """A request by one of the sessions."""

    session: int
    request: Request


Steps = tuple[Step, ...]


def steps(root: str, random: Random) -> Steps:
    """Creates its root, and works below it."""
    paths = [root]
    first = Step(random.randrange(SESSIONS), Create(root))
    rest = (
        Step(random.randrange(SESSIONS), _request(paths, random))
        for _ in range(random.choice(_LENGTHS))
    )
    return (first, *rest)


def _request(paths: list[str], random: Random) -> Request:
    """`paths` are those of nodes that may exist; what is created is added to them."""
    kind = random.randrange(10)
    if kind < 5:
        return _change(paths, random)
    if kind == 5:
        return Multi(tuple(_write(paths, random) for _ in range(random.randint(1, 3))))
    return random.choice((Exists, GetData, GetChildren))(_any(paths, random), random.random() < 0.8)


def _write(paths: list[str], random: Random) -> Write:
    if random.random() < 0.2:
        return Check(_any(paths, random), random.choice(_VERSIONS))
    return _change(paths, random)


def _change(paths: list[str], random: Random) -> Create | Delete | SetData:
    data, ephemeral = random.randbytes(random.randrange(4)), random.random() < 0.4
    kind = random.randrange(8)
    if kind < 3:
        path = _new(paths, random)
        paths.append(path)
        return Create(path, data, ephemeral)
    if kind == 3:
        path = random.choice(paths) + random.choice(("", "/n-"))
        paths.append(f"{path}0000000000")
        return Create(path, data, ephemeral, sequential=True)
    if kind < 6:
        return Delete(_any(paths, random), random.choice(_VERSIONS))
    return SetData(_any(paths, random), data, random.choice(_VERSIONS))


def _any(paths: list[str], random: Random) -> str:
    """Seldom a node that does not exist."""
    return _new(paths, random) if random.random() < 0.2 else random.choice(paths)


def _new(paths: list[str], random: Random) -> str:
    return random.choice(paths) + random.choice(("/a", "/b"))
