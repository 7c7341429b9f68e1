"""Programs of the user's as processes: their words filled in, their output, their masks."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import final
from urllib.request import ProxyHandler, build_opener

from fencepost.events import AppStarted
from fencepost.history.files import write_whole
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import now_ns
from fencepost.model.errors import UsageError
from fencepost.model.secrets import masked
from fencepost.model.system.apps import (
    Parse,
    Program,
    check_installed,
    filled,
    secrets_of,
)
from fencepost.model.system.capabilities import Place
from fencepost.model.system.topology import Layout, Slot
from fencepost.runtimes.process.app_output import AppOutput
from fencepost.supervision.launcher import Child, Exit

MOST_LOG_BYTES = 64 << 20
"""How long the log of a process may be, which may print without end."""
_ASK_S = 2.0
"""How long one question to a port or a URL may take."""


@final
class App:
    """An app whose program was given."""

    def __init__(
        self, program: Program, parse: Parse, folder: RunFolder, *, contained: bool
    ) -> None:
        self.program = program
        self._contained = contained
        self._parse = parse
        self._folder = folder
        self.kept: list[Path] = []
        """The logs of its processes, and the files that they were started with, here."""

    def child(self, place: Place, bootstrap: Sequence[str]) -> Child:
        """The process to start in a place: every word in braces is filled in."""
        program, words = self.program, _words(place, bootstrap)
        own = {name: filled(value, words) for name, value in program.environment.items()}
        log = self._folder.log_of(place.process)
        self.kept.append(log)
        if not self._contained:
            self.kept += (place.work_dir / path for path in program.files)
        return Child(
            place.process,
            [filled(word, words) for word in program.argv],
            place.work_dir,
            log,
            # As it is now: a test may have changed it since the supervisor began. A container has
            # what its image says.
            own if self._contained else {**os.environ, **own},
            files={path: filled(text, words) for path, text in program.files.items()},
            slot=place.slot,
            directory=None if self._contained else Path(program.folder).absolute(),
            image=program.image,
        )

    def started(self, process: str) -> AppStarted:
        """The event of a process that has begun."""
        program = self.program
        return AppStarted(
            app=program.name,
            started=process,
            argv=tuple(map(self.masked, program.argv)),
            may_end=program.may_end,
            works_again_ms=program.works_again_ms,
        )

    def output(self, process: str) -> AppOutput:
        """What makes events of that process's output."""
        ready = self.program.ready
        line = ready.line if ready else ""
        return AppOutput(process, line, self._parse, now_ns=now_ns, mask=self.masked)

    def masked(self, said: str) -> str:
        """The text without the secrets of the program."""
        return masked(said, secrets_of(self.program))

    def asked(self, place: Place) -> str:
        """Why the port or the URL does not answer; empty if it does, or none is to be asked."""
        ready = self.program.ready
        if ready is None or ready.line:
            return ""
        if ready.port:
            try:
                socket.create_connection((place.address, ready.port), _ASK_S).close()
            except OSError as failed:
                return f"{place.address}:{ready.port}: {failed.strerror or 'no answer'}"
            return ""
        url = filled(ready.url, _words(place, ()))
        try:
            # Past the proxies of the environment: the program is on this host.
            with build_opener(ProxyHandler({})).open(url, timeout=_ASK_S):
                return ""
        except (OSError, HTTPException, ValueError) as failed:
            return self.masked(f"{url}: {failed}")

    def mask_kept(self) -> None:
        """Takes secrets out of what it has printed, and of its files; see `Program.secrets`."""
        for path in self.kept if secrets_of(self.program) else ():
            with suppress(FileNotFoundError):
                text = path.read_bytes().decode(errors="surrogateescape")
                if (clean := self.masked(text)) != text:
                    write_whole(path, clean.encode(errors="surrogateescape"))


@final
class Apps:
    """The apps of a run whose programs were given."""

    def __init__(self, layout: Layout, folder: RunFolder, *, contained: bool) -> None:
        """`contained`: programs run in containers, each of an image."""
        self._layout = layout
        self._contained = contained
        self._folder = folder
        self._known: dict[str, App] = {}

    def install(self, program: Program, parse: Parse) -> None:
        """See `RunsApps.install`."""
        check_installed(self._layout, program)
        if self._contained and not program.image:
            raise UsageError(f"on docker the app {program.name} needs an `image`")
        if not self._contained and not program.argv:
            raise UsageError(f"the app {program.name} is an image alone: it runs on docker")
        self._known[program.name] = App(program, parse, self._folder, contained=self._contained)

    def of(self, slot: Slot) -> App | None:
        """The app of a slot; None for a node's. Raises UsageError if its program was not given."""
        if not slot.app:
            return None
        if slot.app not in self._known:
            raise UsageError(f"no program was given for the app {slot.app}: `apps.start` takes it")
        return self._known[slot.app]

    def may_end(self, slot: Slot, end: Exit) -> bool:
        """Whether the process in a slot is a program that may end so."""
        app = self._known.get(slot.app)
        return app is not None and app.program.may_end and not (end.code or end.signal)

    def masked(self, slot: Slot, said: str) -> str:
        """What a process in a slot said, without the secrets of its app."""
        app = self._known.get(slot.app)
        return said if app is None else app.masked(said)

    def restarts(self, slot: Slot) -> bool:
        """Whether the program in a slot is started again when it ends by itself."""
        app = self._known.get(slot.app)
        return app is not None and app.program.restarts

    def mask_kept(self) -> None:
        """See `App.mask_kept`."""
        for app in self._known.values():
            app.mask_kept()


def _words(place: Place, bootstrap: Sequence[str]) -> Mapping[str, str]:
    """What the words in braces stand for in a place; see `fencepost.model.system.apps.WORDS`."""
    slot = place.slot
    return {
        "bootstrap": ",".join(bootstrap),
        "address": place.address,
        "instance": slot.name.removeprefix(f"{slot.app}-"),
        "app": slot.app,
        "slot": slot.name,
        "work": str(place.work_dir),
        "data": str(place.data_dir),
        "secrets": str(place.secrets or ""),
    }
