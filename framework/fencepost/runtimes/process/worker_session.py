"""The harness's end of a client worker: its configuration, and the pipe to it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import final

import msgspec

from fencepost.history.files import write_whole
from fencepost.history.run_folder import RunFolder
from fencepost.model.disk import written_to
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.runtime import ClientSpec, Process, Signal, client_port, clients_slot
from fencepost.model.system.topology import Layout
from fencepost.model.system.worker_config import WorkerConfig
from fencepost.runtimes.process.backend import Addressing
from fencepost.runtimes.process.processes import Processes

_LONGEST_COMMAND = 4096
"""What a pipe accepts whole or not at all."""


def write_worker_config(
    folder: RunFolder,
    layout: Layout,
    addresses: Addressing,
    process: str,
    spec: ClientSpec,
    *,
    bootstrap: tuple[str, ...],
    access: tuple[str, Path | None] = ("", None),
) -> Path:
    """Writes the configuration of a worker in the clients' slot into the folder in which it starts;
    its path. `access` is the security of the cluster, and the folder of its secrets. Raises as
    `clients_slot`, and EnvironmentFailed if the disk is full."""
    security, secrets = access
    slot = clients_slot(layout, spec)
    config = WorkerConfig(
        run=folder.run,
        process=process,
        events=os.fspath(folder.events_of(process)),
        bootstrap=bootstrap,
        hosts={other.name: addresses.seen(slot, other) for other in layout.slots},
        client_port=client_port(layout),
        options=msgspec.Raw(msgspec.json.encode(spec.options)),
        own={other.name: addresses.outside(other) for other in layout.slots},
        security=security,
        secrets="" if secrets is None else os.fspath(secrets),
        slot=slot.name,
    )
    work = folder.work_of(process)
    with written_to(work):
        work.mkdir()
    write_whole(work / "config.json", msgspec.json.format(msgspec.json.encode(config)))
    return work / "config.json"


@final
class WorkerSession:
    """See `ClientSession`. `commands` is the pipe, not blocking, and closed by `stop`."""

    def __init__(self, process: Process, processes: Processes, commands: int) -> None:
        self._process = process
        self._processes = processes
        self._commands = commands

    @property
    def process(self) -> str:
        return self._process.name

    def tell(self, command: Mapping[str, object]) -> None:
        """See `ClientSession.tell`.

        Raises UsageError for a command above 4 kB or after `stop`, EnvironmentFailed when the
        worker has ended or does not read.
        """
        line = json.dumps(command).encode() + b"\n"
        # A pipe takes up to 4096 bytes (PIPE_BUF) whole or not at all. A longer line might be taken
        # in part, and the worker would read half a command.
        if len(line) > _LONGEST_COMMAND or self._commands < 0:
            why = "was asked to stop" if self._commands < 0 else "takes commands of 4 kB at most"
            raise UsageError(f"{self.process} {why}")
        try:
            os.write(self._commands, line)
        except BrokenPipeError:
            why = self._processes.why_ended(self.process)
            raise EnvironmentFailed(f"{self.process} takes no commands: it {why}") from None
        except BlockingIOError:
            raise EnvironmentFailed(f"{self.process} does not read its commands") from None

    def stop(self) -> None:
        """See `ClientSession.stop`; safe to call twice."""
        if self._commands >= 0:
            self._processes.expect_end(self.process)
            os.close(self._commands)
            self._commands = -1

    def end(self) -> None:
        """See `ClientSession.end`; safe to call twice."""
        self.stop()
        self._processes.signal(self._process, Signal.KILL)
