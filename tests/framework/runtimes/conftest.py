"""Two echo nodes on each runtime, for the contract that all runtimes satisfy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import docker_bench
from tests.echo_node import EchoSystem
from tests.echo_run import PAIR, echo_run, simulated_run, start_brokers, talk

from fencepost import Runtime, Shape, Signal


def make_on(
    runtime: str, path: Path, system: EchoSystem | None = None, shape: Shape = PAIR
) -> Runtime:
    """A run of echo nodes that are not started."""
    match runtime:
        case "simulated":
            return simulated_run(path, system, shape)
        case "docker":
            return echo_run(path, system, shape, docker_bench.usable_backend())
        case _:
            return echo_run(path, system, shape)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("process", marks=pytest.mark.real),
        pytest.param("docker", marks=pytest.mark.real),
        "simulated",
    ],
)
def kind(request: pytest.FixtureRequest) -> str:
    """The name of the runtime."""
    return str(request.param)


@pytest.fixture(scope="module")
def shared(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """Two brokers that talk to each other."""
    runtime = make_on(kind, tmp_path_factory.mktemp(kind) / "run")
    try:
        start_brokers(runtime)
        yield runtime
    finally:
        runtime.close()


@pytest.fixture
def pair(shared: Runtime) -> Iterator[Runtime]:
    """The shared runtime, in which each test leaves the nodes alive and the links healthy."""
    yield shared
    for broker in shared.layout.nodes():
        living = shared.living(broker)
        if living is None:
            shared.start(broker)
        else:
            shared.signal(living, Signal.CONT)
    healed = shared.heal_links()
    assert healed.true, healed.evidence
    talk(shared)


@pytest.fixture
def make(kind: str, tmp_path: Path) -> Iterator[Callable[..., Runtime]]:
    """Runtimes of echo nodes that are not started; closed at the end."""
    made: list[Runtime] = []

    def build(system: EchoSystem | None = None, shape: Shape = PAIR) -> Runtime:
        made.append(make_on(kind, tmp_path / f"run-{len(made) + 1}", system, shape))
        return made[-1]

    yield build
    for runtime in made:
        runtime.close()
