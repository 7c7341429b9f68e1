"""The backend of this host: processes of one supervisor, on loopback addresses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import final

from fencepost.history.run_folder import RunFolder
from fencepost.injection.direct import direct
from fencepost.injection.links import Links
from fencepost.injection.probes import HostProber, Prober
from fencepost.injection.toxiproxies import HostToxiproxies, find_toxiproxy, toxiproxy_version
from fencepost.model.runtime import Process
from fencepost.model.system.capabilities import System
from fencepost.model.system.probe import Probe
from fencepost.model.system.topology import Layout, Link, Slot
from fencepost.model.torn_files import torn, torn_files
from fencepost.runtimes.process.backend import Backend, BackendKind, Home
from fencepost.supervision.addresses import Addresses, claim
from fencepost.supervision.launcher import Launcher


def host_backend() -> BackendKind:
    """This host; raises EnvironmentFailed if toxiproxy is missing."""
    versions = {"toxiproxy": toxiproxy_version(find_toxiproxy(os.environ))}
    return BackendKind("process", _open, versions)


def _open(layout: Layout, folder: RunFolder) -> Backend:
    return HostBackend(layout, folder)


@final
class HostBackend:
    """See `Backend`. Claims addresses and starts the supervisor."""

    left = ()

    def __init__(self, layout: Layout, folder: RunFolder) -> None:
        self._folder = folder
        self._finish = ExitStack()
        try:
            # In this order, and undone in the opposite one: the numbers of a run are free again
            # only after every process that has one of its addresses is gone.
            claimed = claim()
            self._finish.callback(claimed.close)
            self.addresses = Addresses(claimed.run)
            self._finish.callback(shutil.rmtree, folder.sockets, ignore_errors=True)
            self.launcher = Launcher(folder.log_of("supervisor"), [claimed.fileno()])
            self._finish.callback(self.launcher.close)
            self.toxiproxies = HostToxiproxies(layout, self.addresses, self.launcher, folder)
            self.links = Links(layout, self.toxiproxies)
            for slot in layout.slots:
                folder.data_of(slot.name).mkdir(exist_ok=True)  # a user may have mounted one
        except BaseException:
            self._finish.close()
            raise

    def prober(
        self, system: System, living: Callable[[str], Process | None], probe: Probe | None = None
    ) -> Prober:
        """See `Backend.prober`."""

        def past(links: Sequence[Link]) -> Mapping[Link, int]:
            sources = {link.source: living(link.source) for link in links}
            pids = {slot: process.pid for slot, process in sources.items() if process}
            # `upstream` is the target's own address, which only its toxiproxies are to dial.
            return direct({link: self.toxiproxies.upstream(link) for link in links}, pids)

        return HostProber(system, self.toxiproxies.listen, past, probe)

    def home(self, slot: Slot, process: str) -> Home:
        """See `Backend.home`: folders of the run."""
        folder = self._folder
        return Home(folder.data_of(slot.name), folder.work_of(process), folder.events_of(process))

    def copy_disk(self, source: Slot | None, target: Slot) -> None:
        """See `Backend.copy_disk`. A file that a process changes meanwhile is copied as it is read;
        a file that it removes meanwhile is left out."""
        disk = self._folder.data_of(target.name)
        shutil.rmtree(disk, ignore_errors=True)
        if source is None:
            disk.mkdir(parents=True)
        else:
            _copy(self._folder.data_of(source.name), disk)

    def damage_disk(self, target: Slot, files: str, last_bytes: int) -> Sequence[str]:
        """See `Backend.damage_disk`."""
        disk = self._folder.data_of(target.name)
        held = (str(path.relative_to(disk)) for path in disk.rglob("*") if path.is_file())
        damaged: list[str] = []
        for path in torn_files(held, files):
            data = (disk / path).read_bytes()
            if torn(data, last_bytes) != data:
                (disk / path).write_bytes(torn(data, last_bytes))
                damaged.append(path)
        return damaged

    def close(self) -> None:
        """See `Backend.close`."""
        self._finish.close()


def _copy(source: Path, target: Path) -> None:
    """Copies a folder, except files that vanish meanwhile, for which `shutil.copytree` would
    fail."""
    with os.scandir(source) as listed:
        entries = list(listed)
    target.mkdir(parents=True)
    for entry in entries:
        with suppress(FileNotFoundError):
            if entry.is_dir():
                _copy(Path(entry), target / entry.name)
            else:
                shutil.copy2(entry, target / entry.name)
    shutil.copystat(source, target)
