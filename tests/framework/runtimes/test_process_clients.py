"""Client workers on the process runtime: commands, ends, and impossible clients."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import echo_node
from tests.echo_node import EchoSystem
from tests.echo_run import NEVER, PAIR, advance, answered, echo_run, talking_pair

from fencepost import (
    ClientFailed,
    ClientSpec,
    Condition,
    EnvironmentFailed,
    ProcessExited,
    ProcessSpawned,
    Shape,
    UsageError,
)
from fencepost.runtimes.process.runtime import ProcessRuntime

pytestmark = pytest.mark.real

Make = Callable[..., ProcessRuntime]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Runtimes of echo nodes that are not started; closed at the end."""
    made: list[ProcessRuntime] = []

    def build(system: EchoSystem | None = None, shape: Shape = PAIR) -> ProcessRuntime:
        made.append(echo_run(tmp_path / f"run-{len(made) + 1}", system, shape))
        return made[-1]

    yield build
    for runtime in made:
        runtime.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[ProcessRuntime]:
    """Two brokers that talk to each other."""
    runtime = talking_pair(tmp_path / "pair")
    yield runtime
    runtime.close()


def test_a_client_takes_commands_is_stopped_and_is_in_the_history(pair: ProcessRuntime) -> None:
    session = pair.client(ClientSpec("one", "echo"))
    assert session.process == "clients/one#1"
    session.tell({"say": "first"})
    session.tell({"say": "second"})
    assert advance(pair, Condition("two", lambda v: v.kinds["echo.command_received"] == 2))
    assert pair.view.latest[
        session.process, "echo.command_received"
    ].body == echo_node.CommandReceived("second")
    session.stop()
    session.stop()
    ended = advance(pair, Condition("its end", lambda v: session.process not in v.alive))
    assert ended is not None
    assert ended.body == ProcessExited(ended="clients/one#1", exit_code=0, signal=0, expected=True)
    with pytest.raises(UsageError, match="was asked to stop"):
        session.tell({"say": "third"})
    assert pair.client(ClientSpec("one", "echo")).process == "clients/one#2"


def test_a_client_that_crashes_is_reported_and_recorded(pair: ProcessRuntime) -> None:
    session = pair.client(ClientSpec("one", "echo", {"crash": True}))
    with pytest.raises(EnvironmentFailed, match=r"clients/one#1 .* was ended by SIGSEGV"):
        advance(pair, NEVER, 10)
    failed = pair.view.latest["harness", "client.failed"]
    assert failed.body == ClientFailed(error="clients/one#1 was ended by SIGSEGV", fatal=True)
    with pytest.raises(EnvironmentFailed, match="takes no commands: it was ended by SIGSEGV"):
        session.tell({"say": "hello"})


def test_a_run_goes_on_without_a_client_that_may_die(pair: ProcessRuntime) -> None:
    session = pair.client(ClientSpec("one", "echo", {"crash": True}, may_die=True))
    ended = advance(pair, Condition("its end", lambda view: view.kinds["client.failed"] == 1))
    assert ended is not None
    assert ended.body == ClientFailed(error="clients/one#1 was ended by SIGSEGV", fatal=True)
    assert session.process not in pair.view.alive
    session.stop()
    assert advance(pair, NEVER, 0.2) is None


def test_a_client_that_may_die_may_not_fail(pair: ProcessRuntime) -> None:
    pair.client(ClientSpec("one", "echo", {"fail": True}, may_die=True))
    with pytest.raises(EnvironmentFailed, match=r"clients/one#1 .* ended with exit code 3"):
        advance(pair, NEVER, 10)


def test_a_client_that_does_not_read_blocks_no_call(pair: ProcessRuntime) -> None:
    session = pair.client(ClientSpec("one", "echo"))
    assert advance(pair, answered(session.process))
    os.kill(next(pid_of(pair, session.process)), signal.SIGSTOP)

    def tell_on() -> None:
        for _ in range(200):
            session.tell({"say": "x" * 3000})

    with pytest.raises(EnvironmentFailed, match="does not read its commands"):
        tell_on()


def test_a_client_that_hangs_is_ended_by_force(pair: ProcessRuntime) -> None:
    session = pair.client(ClientSpec("one", "echo"))
    assert advance(pair, answered(session.process))
    os.kill(next(pid_of(pair, session.process)), signal.SIGSTOP)
    session.stop()
    its_end = Condition("its end", lambda view: session.process not in view.alive)
    assert advance(pair, its_end, 0.5) is None
    session.end()
    session.end()
    ended = advance(pair, its_end)
    assert ended is not None
    assert ended.body == ProcessExited(ended="clients/one#1", exit_code=0, signal=9, expected=True)


def pid_of(runtime: ProcessRuntime, process: str) -> Iterator[int]:
    for event in runtime.events():
        if isinstance(event.body, ProcessSpawned) and event.body.started == process:
            yield event.body.pid


def test_an_impossible_client_is_refused(make: Make) -> None:
    runtime = make()
    with pytest.raises(UsageError, match="no workload named 'ecko'; did you mean 'echo'"):
        runtime.client(ClientSpec("one", "ecko"))
    with pytest.raises(UsageError, match="'One Two' is not lower-case"):
        runtime.client(ClientSpec("One Two", "echo"))
    with pytest.raises(UsageError, match="lays out no slot for clients"):
        make(EchoSystem(clients=False)).client(ClientSpec("one", "echo"))
    session = runtime.client(ClientSpec("one", "echo"))
    with pytest.raises(UsageError, match="4 kB at most"):
        session.tell({"say": "x" * 5000})
