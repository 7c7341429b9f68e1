"""Links of three echoing servers, and a toxiproxy that hangs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.link_bench import Bench, open_bench, process_of

from fencepost.injection import toxiproxies as module
from fencepost.injection.toxiproxies import HostToxiproxies, Reply
from fencepost.model.clock import poll
from fencepost.supervision.launcher import state_of


@pytest.fixture
def bench(tmp_path: Path, real: None) -> Iterator[Bench]:
    with open_bench(tmp_path) as bench:
        yield bench


@pytest.fixture
def hang(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Stops a slot's toxiproxy, which is then given up soon; a toxiproxy that is merely slow is
    not."""
    stopped: set[int] = set()
    ask = HostToxiproxies.ask

    def ask_patiently(
        self: HostToxiproxies, process: str, method: str, path: str, body: object = None
    ) -> Reply:
        hangs = bench.launcher._pids[process] in stopped
        monkeypatch.setattr(module, "API_LIMIT_S", 0.3 if hangs else 30)
        return ask(self, process, method, path, body)

    def stop(slot: str) -> None:
        pid = process_of(bench, slot)
        stopped.add(pid)
        os.kill(pid, signal.SIGSTOP)
        # A thread that has not been scheduled since still answers.
        threads = Path(f"/proc/{pid}/task")
        assert poll(lambda: {state_of(int(one.name)) for one in threads.iterdir()} == {"T"}, 10)

    monkeypatch.setattr(HostToxiproxies, "ask", ask_patiently)
    return stop
