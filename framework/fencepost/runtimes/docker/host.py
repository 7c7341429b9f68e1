"""The docker backend: a pod for each slot, a container for each process; clients stay on this host.
Programs of the user's are containers, too, of images of their own.

Nodes are containers that join their slot's pod (`fencepost.runtimes.docker.pods`). Client workers
are processes of this host, with any library. They reach the nodes through the clients' pod, whose
links are published on this host's loopback only.

A node's events file is a pipe that the engine holds. Its events arrive here over the engine's
stream as they are written, so the events of a killed process arrive, too. All processes of a pod
share its namespaces, so they end with the pod's agent. The agent ends with this process, however
this process dies. The containers that are left are stopped and labelled, and the next run removes
them.

See docs/decisions/12-pods.md.
"""

from __future__ import annotations

import io
import os
import selectors
import signal
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Condition, Thread
from typing import final

from fencepost.history.run_folder import RunFolder
from fencepost.injection.links import Links
from fencepost.injection.probes import Prober
from fencepost.model.clock import now_ns
from fencepost.model.errors import EnvironmentFailed
from fencepost.model.runtime import Process
from fencepost.model.system.capabilities import System
from fencepost.model.system.probe import Probe
from fencepost.model.system.topology import CLIENT, Layout, Slot
from fencepost.model.torn_files import torn, torn_files
from fencepost.runtimes.docker.engine import Container, Engine, Leftover, Stream, connect, owner
from fencepost.runtimes.docker.pods import DATA, IMAGE, MOUNT, WORK, PodProber, Pods, named
from fencepost.runtimes.docker.sources import SOURCES_LABEL, digest
from fencepost.runtimes.process.backend import Backend, BackendKind, Home
from fencepost.supervision.addresses import Addresses, Claim, claim
from fencepost.supervision.launcher import Child, Exit, Launcher

_EVENTS = "/dev/fd/3"
_ENTRY = ("/bin/sh", "-c", 'exec "$@" 3>&1 1>&2', "sh")
"""Descriptor 3 of the program leads to its events; all its other output goes to the log."""
_NETWORKS = "198.18"
"""RFC 2544 reserves these addresses for tests of networks, so a run hides no address in use."""
_LINKS = "127.0.1"
_SIGNALLED = 128
"""The engine reports an end by signal n as exit code 128 + n."""
_MOST_CLAIMS = 20


ImageOf = Callable[[Slot], str]
"""The name of the image of a slot's node."""


def docker_backend(image: ImageOf) -> BackendKind:
    """Nodes as containers of these images, in pods.

    Raises EnvironmentFailed without an engine or the image of pods. Opening the backend raises it
    without the images of the layout's nodes.
    """
    engine = connect(os.environ)
    try:
        _check_image(engine, IMAGE)
        versions = {"engine": engine.version}
    finally:
        engine.close()

    def open_host(layout: Layout, folder: RunFolder) -> Backend:
        return DockerHost(layout, folder, image)

    return BackendKind("docker", open_host, versions)


def _check_image(engine: Engine, name: str) -> None:
    """Raises EnvironmentFailed if there is no such image, or if it was built from other sources."""
    made_of = engine.image_label(name, SOURCES_LABEL)
    if made_of and made_of != digest():
        raise EnvironmentFailed(
            f"the image {name} was built from other sources than are installed here: "
            "rebuild it by ./dev images"
        )


@final
@dataclass(frozen=True, slots=True)
class DockerAddresses:
    """The addresses of one run: pods at 198.18.<run>.<slot>, links in a pod at 127.0.1.<peer>.

    Published ports have the addresses of the process runtime: the clients' ends of their links at
    127.<run>.<clients>.<peer>, a node's metrics page at 127.<run>.<slot>.<slot>.
    """

    here: Addresses

    def own(self, slot: Slot) -> str:
        """See `Addressing.own`."""
        return f"{_NETWORKS}.{self.here.run}.{slot.index}"

    def seen(self, source: Slot, target: Slot) -> str:
        """See `Addressing.seen`; clients are on this host."""
        if source.name == target.name:
            return self.own(source)
        if source.role == CLIENT and not source.app:
            return self.here.seen(source, target)
        return f"{_LINKS}.{target.index}"

    def outside(self, slot: Slot) -> str:
        """See `Addressing.outside`."""
        return self.here.own(slot)


@final
class _Ends:
    """The ends of processes, reported by threads and read by one thread."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._known: dict[str, Exit] = {}
        self._new: deque[Exit] = deque()
        self._lost: EnvironmentFailed | None = None
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._bell

    # Called by the threads of streams; `wait`, `take` and `close` by the harness's one thread. The
    # bell makes an end visible to its selector, which knows descriptors only.
    def note(self, end: Exit) -> None:
        with self._changed:
            # Kept twice: `take` gives each end once, and `wait` may ask for it at any time.
            self._known[end.name] = end
            self._new.append(end)
            # After `close` a stream's thread may still report an end: the bell's number may belong
            # to another file by then.
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)
            self._changed.notify_all()

    def wait(self, name: str, limit_s: float) -> Exit | None:
        with self._changed:
            self._changed.wait_for(lambda: name in self._known, limit_s)
            return self._known.get(name)

    def lose(self, why: EnvironmentFailed) -> None:
        """Some output of a process is lost: the next call raises this error."""
        with self._changed:
            self._lost = self._lost or why
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    def take(self) -> list[Exit]:
        """Raises EnvironmentFailed, once, if output was lost."""
        with self._changed:
            with suppress(BlockingIOError):
                os.eventfd_read(self._bell)
            if self._lost is not None:
                # Once: the run ends with this error, and its teardown still needs the ends that
                # follow.
                lost, self._lost = self._lost, None
                raise lost
            seen = list(self._new)
            self._new.clear()
            return seen

    def close(self) -> None:
        with self._changed:
            os.close(self._bell)
            self._bell = -1


@final
class _Output:
    """The output of one process, on its way to the run's files: events as whole lines, and the
    log."""

    def __init__(self, events: Path, log: Path, ends: _Ends) -> None:
        self._events = events
        self._log = log
        self._ends = ends
        self._rest = b""

    def event(self, data: bytes) -> None:
        # Only whole lines are written, so an events file never ends in the middle of an event.
        whole, end, self._rest = (self._rest + data).rpartition(b"\n")
        if end:
            self._append(self._events, whole + end)

    def log(self, data: bytes) -> None:
        self._append(self._log, data)

    def _append(self, path: Path, data: bytes) -> None:
        try:
            with path.open("ab") as file:
                file.write(data)
        except OSError as failed:
            self._ends.lose(EnvironmentFailed(f"{path} cannot be written: {failed.strerror}"))

    def end(self) -> None:
        # its writer was killed before `record` returned, so the event was not recorded
        if self._rest:
            self.log(b"ended while it wrote an event: " + self._rest + b"\n")


@final
class ContainerLauncher:
    """See `Launching`: nodes as containers, clients as processes of this host."""

    def __init__(
        self,
        engine: Engine,
        pods: Pods,
        *,
        folder: RunFolder,
        image: ImageOf,
        here: Launcher,
        ends: _Ends,
    ) -> None:
        self._engine = engine
        self._pods = pods
        self._folder = folder
        self._image = image
        self._here = here
        self._ends = ends
        self._containers: dict[str, tuple[str, Slot]] = {}
        self._streams: dict[str, Stream] = {}
        self._either = selectors.EpollSelector()
        self._either.register(here.fileno(), selectors.EVENT_READ)
        self._either.register(ends.fileno(), selectors.EVENT_READ)

    def fileno(self) -> int:
        """See `Launching.fileno`."""
        return self._either.fileno()

    def start(self, child: Child) -> tuple[int, int]:
        """See `Launching.start`."""
        slot = child.slot
        if slot is None or (slot.role == CLIENT and not slot.app):
            return self._here.start(child)
        if slot.app:
            # Raises if there is none. The engine would say so, too, but in its own words.
            self._engine.image_label(child.image, SOURCES_LABEL, "pull it, or build it, first")
        pod = self._pods.of(slot)
        # Before the program starts, in the pod's volume: no folder of this host is mounted in a
        # container.
        pod.ask("write", folder=os.fspath(child.folder), files=dict(child.files))
        container = self._engine.create(
            Container(
                name=f"{self._pods.prefix}-{child.name.replace('#', '.')}",
                image=child.image or self._image(slot),
                # A program of the user's writes no events, and its image may have no shell.
                argv=child.argv if slot.app else [*_ENTRY, *child.argv],
                volume=pod.volume,
                folder=MOUNT,
                environment={**child.environment, **named(child.name)},
                joins=pod.container,
                work_dir="" if slot.app else os.fspath(child.folder),
            )
        )
        output = _Output(self._folder.events_of(child.name), child.log, self._ends)

        def ended() -> None:
            at_ns = now_ns()
            output.end()
            self._ends.note(_exit(child.name, self._engine, container, at_ns))

        child.log.touch()
        # Attached before the start: what a program writes in its first milliseconds would be lost
        # otherwise.
        first = output.log if slot.app else output.event
        stream = self._engine.attach(container, first, output.log, ended)
        self._streams[child.name] = stream
        self._containers[child.name] = container, slot
        at_ns = now_ns()
        try:
            return self._engine.start(container), at_ns
        except EnvironmentFailed as failed:
            raise EnvironmentFailed(f"{child.name} could not be started: {failed}") from failed

    def signal(self, name: str, number: int) -> bool:
        """See `Launching.signal`."""
        if name not in self._containers:
            return self._here.signal(name, number)
        return self._engine.kill(self._containers[name][0], number)

    def state(self, name: str) -> str:
        """See `Launching.state`; the pod's agent reports it."""
        if name not in self._containers:
            return self._here.state(name)
        answer = self._pods.of(self._containers[name][1]).ask("state", process=name)
        return str(answer["state"])

    def owns(self, name: str) -> bool:
        """See `Launching.owns`."""
        return True

    def kill_soon(self, name: str) -> None:
        """See `Launching.kill_soon`."""
        if name not in self._containers:
            self._here.kill_soon(name)
            return
        container = self._containers[name][0]

        def kill() -> None:
            with suppress(EnvironmentFailed):  # no caller waits for an answer
                self._engine.kill(container, signal.SIGKILL)

        Thread(target=kill, daemon=True).start()

    def wait(self, name: str, limit_s: float) -> Exit | None:
        """See `Launching.wait`."""
        if name not in self._containers:
            return self._here.wait(name, limit_s)
        return self._ends.wait(name, limit_s)

    def exits(self) -> list[Exit]:
        """See `Launching.exits`."""
        # Two sources: workers on this host and nodes in containers. Merged, they are in one order
        # of time.
        return sorted([*self._here.exits(), *self._ends.take()], key=lambda end: end.at_ns)

    def close(self) -> None:
        """Stops following all containers."""
        for stream in self._streams.values():
            stream.close()
        self._either.close()


def _exit(name: str, engine: Engine, container: str, at_ns: int) -> Exit:
    """How a container ended whose streams have ended."""
    try:
        # Asked once the streams have ended: by then everything that the process wrote is in its
        # files, as `Launching.exits` promises.
        code = engine.exit_code(container)
    except EnvironmentFailed:  # another call removed it, as at the end of every run
        return Exit(name, 0, signal.SIGKILL, at_ns)
    # A program may also exit with such a code itself, as shells do for a child. It cannot be told
    # apart here.
    killed_by = code - _SIGNALLED
    if killed_by in set(signal.Signals):
        return Exit(name, 0, killed_by, at_ns)
    return Exit(name, code, 0, at_ns)


@final
class DockerHost:
    """See `Backend`. Removes what dead runs left and claims a network; pods are made when
    needed."""

    left = ()

    def __init__(self, layout: Layout, folder: RunFolder, image: ImageOf) -> None:
        self._layout = layout
        self._closed = False
        self._finish = ExitStack()
        try:
            self._engine = connect(os.environ, folder.run)
            self._finish.callback(self._engine.close)
            # All images before anything is made, also those of nodes that only a fault starts: a
            # missing one must not end a run in its middle.
            for name in {image(slot) for slot in layout.nodes(duplicates=True, spares=True)}:
                _check_image(self._engine, name)
            with suppress(EnvironmentFailed):  # if it conflicts, a later call reports it
                # What dead runs left may hold the network that this one is about to claim.
                self._engine.clear(lambda left: left.abandoned)
            # The network is named and numbered by the claim, so two runs on this host never ask the
            # engine for one subnet at the same time.
            claimed = _claim_network(self._engine)
            self._finish.callback(claimed.close)
            self._prefix = _prefix(claimed.run)
            self._finish.callback(self._engine.clear, self._is_ours)
            self.addresses = DockerAddresses(Addresses(claimed.run))
            here = Launcher(folder.log_of("supervisor"), [claimed.fileno()])
            self._finish.callback(here.close)
            ends = _Ends()
            self._finish.callback(ends.close)
            self.toxiproxies = Pods(
                layout=layout,
                addresses=self.addresses,
                engine=self._engine,
                folder=folder,
                prefix=self._prefix,
                ended=lambda name, pod: ends.note(_exit(name, self._engine, pod, now_ns())),
            )
            self._finish.callback(self.toxiproxies.close)
            self.links = Links(layout, self.toxiproxies)
            self.launcher = ContainerLauncher(
                engine=self._engine,
                pods=self.toxiproxies,
                folder=folder,
                image=image,
                here=here,
                ends=ends,
            )
            self._finish.callback(self.launcher.close)
        except BaseException:
            self._finish.close()
            raise
        self._image = image

    def prober(
        self, system: System, living: Callable[[str], Process | None], probe: Probe | None = None
    ) -> Prober:
        """See `Backend.prober`."""
        return PodProber(self.toxiproxies, self._layout, system)

    def home(self, slot: Slot, process: str) -> Home:
        """See `Backend.home`: folders in the pod."""
        work = PurePosixPath(WORK) / process.replace("/", ".")
        image = "" if slot.app else self._image(slot)
        return Home(Path(DATA), Path(work), Path(_EVENTS), image)

    def copy_disk(self, source: Slot | None, target: Slot) -> None:
        """See `Backend.copy_disk`."""
        pod = self.toxiproxies.of(target)
        # Packed before the target is wiped: the source may not answer, and the target's disk stays
        # then.
        packed = None if source is None else self.toxiproxies.of(source).pack()
        pod.ask("wipe", folder=DATA)
        if packed is not None:
            pod.unpack(packed)

    def damage_disk(self, target: Slot, files: str, last_bytes: int) -> Sequence[str]:
        """See `Backend.damage_disk`."""
        pod = self.toxiproxies.of(target)
        disk = _unpacked(pod.pack())
        chosen = [disk[path] for path in torn_files(disk, files)]
        damaged = [one for one in chosen if torn(one[1], last_bytes) != one[1]]
        # Only the files that change are written back, over the old ones; the disk has no process
        # meanwhile.
        pod.unpack(_packed((entry, torn(data, last_bytes)) for entry, data in damaged))
        return [entry.name for entry, _ in damaged]

    def close(self) -> None:
        """See `Backend.close`; the disks are saved in the run's folder before."""
        if self._closed:
            return
        self._closed = True
        with self._finish:
            # The volumes go with the pods. Rules that read disks read the run's folder.
            self.toxiproxies.save()

    def _is_ours(self, left: Leftover) -> bool:
        # A name is followed by a dash: fencepost-12 does not belong to fencepost-1.
        return left.owner == owner() and f"{left.name}-".startswith(f"{self._prefix}-")


_File = tuple[tarfile.TarInfo, bytes]
"""A file's entry, with its mode and time, and its content."""


def _unpacked(packed: bytes) -> Mapping[str, _File]:
    """The regular files of a packed disk, by path."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        held = ((entry, tar.extractfile(entry)) for entry in tar if entry.isreg())
        return {entry.name: (entry, file.read()) for entry, file in held if file is not None}


def _packed(files: Iterable[_File]) -> bytes:
    """Files of a disk, packed as a pod packs them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for entry, data in files:
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _prefix(run: int) -> str:
    return f"fencepost-{run}"


def _claim_network(engine: Engine) -> Claim:
    """A run number that no run on this host uses, and for which the engine has no network."""
    taken: list[int] = []
    for _ in range(_MOST_CLAIMS):
        claimed = claim(taken[-1] + 1 if taken else None)
        subnet = f"{_NETWORKS}.{claimed.run}"
        if engine.create_network(_prefix(claimed.run), f"{subnet}.0/24", f"{subnet}.254"):
            return claimed
        claimed.close()
        taken.append(claimed.run)
    raise EnvironmentFailed(
        f"no network of {_NETWORKS}.0.0/16 is free on the container engine: "
        "see fencepost doctor for what dead runs left"
    )
