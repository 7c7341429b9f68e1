"""Pods: for each slot a container that owns its network, its disk and its toxiproxy.

The agent (`fencepost.runtimes.docker.pod_agent`) runs in it. Requests and answers are lines of JSON
on the agent's standard streams, which the engine carries. So a pod opens no ports but those of its
links, and probes run where the slot's own processes are. A slot's process is a container of its own
that joins the pod. When it ends, links, addresses and disk stay as they are.
"""

from __future__ import annotations

import base64
import json
import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar, final

from fencepost.history.run_folder import RunFolder
from fencepost.injection.probes import End, ProbeAnswer, count_open, probe_name, probe_of, raised
from fencepost.injection.toxiproxies import API_LIMIT_S, Hung, Reply
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.system.capabilities import System
from fencepost.model.system.topology import CLIENT, Layout, Link, Slot
from fencepost.runtimes.docker.engine import Container, Engine, Network
from fencepost.runtimes.docker.pod_agent import NAMED, unpack
from fencepost.supervision.launcher import failed_with, tail

T = TypeVar("T")

IMAGE = "fencepost/pod"
MOUNT = "/slot"
DATA = f"{MOUNT}/data"
WORK = f"{MOUNT}/work"
_AGENT = ("python3", "-P", "-S", "/opt/fencepost/fencepost/runtimes/docker/pod_agent.py")
_ANSWER_LIMIT_S = 15.0
_END_LIMIT_S = 2.0
_AT_ONCE = 3
"""How many pods are made at once: with more, all of them would be ready later."""
_FIRST_CLIENT_PORT = 20_000
"""The first port, at the clients' pod's own address, for the ends of its links, which are
published."""


class PodAddressing(Protocol):
    """The addresses of slots, and the addresses on this host of published ports."""

    def own(self, slot: Slot) -> str: ...
    def seen(self, source: Slot, target: Slot) -> str: ...
    def outside(self, slot: Slot) -> str: ...


@final
class Pod:
    """One slot's pod, running; several threads may use it, one at a time."""

    def __init__(self, slot: Slot, container: str, volume: str, log: Path) -> None:
        self.slot = slot
        self.container = container
        self.volume = volume
        self.log = log
        """The file that its log is appended to."""
        self.toxiproxy = ""
        """The name of the toxiproxy process in it."""
        self._send: Callable[[bytes], None] | None = None
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._unfinished: list[bytes] = []
        """The received parts of an unfinished line: a packed disk is one line, in thousands of
        parts."""
        self._last_id = 0
        self._gone = False
        self._asking = Lock()

    def opened(self, send: Callable[[bytes], None]) -> None:
        """From now on its agent accepts requests, by `send`."""
        self._send = send

    def received(self, data: bytes) -> None:
        """Its agent wrote this."""
        *ends, rest = data.split(b"\n")
        # Every element but the last ended with a line end. Parts are joined only once a line is
        # whole: to add each part to a growing string would copy a packed disk thousands of times.
        for end in ends:
            self._answers.put(json.loads(b"".join([*self._unfinished, end])))
            self._unfinished.clear()
        self._unfinished.append(rest)

    def logged(self, data: bytes) -> None:
        """Its agent, or its toxiproxy, logged this."""
        with self.log.open("ab", buffering=0) as file:
            file.write(data)

    def ended(self) -> None:
        """It has ended."""
        self._gone = True
        self._answers.put(None)

    def ask(self, do: str, limit_s: float = _ANSWER_LIMIT_S, /, **words: object) -> dict[str, Any]:
        """Sends one request to the agent; returns its answer.

        Raises EnvironmentFailed if it is gone, is silent, or reports an error.
        """
        # One request at a time, so the next answer is that of this request, or a late one of an
        # earlier.
        with self._asking:
            self._last_id += 1
            line = json.dumps({"id": self._last_id, "do": do, **words}).encode() + b"\n"
            try:
                if self._gone or self._send is None:
                    raise OSError
                self._send(line)
            except OSError as failed:
                raise self._lost("is gone") from failed
            while True:
                try:
                    answer = self._answers.get(timeout=limit_s)
                except queue.Empty:
                    raise self._lost(f"did not answer within {limit_s:g} s") from None
                if answer is None:
                    raise self._lost("is gone")
                # A request that took too long may still be answered. That answer is passed over.
                if answer["id"] == self._last_id:
                    break
        if "error" in answer:
            why = f"the pod of {self.slot.name} could not {do}: {answer['error']}"
            raise EnvironmentFailed(why, tail(self.log), self.log)
        return answer

    def pack(self) -> bytes:
        """The content of its disk, as a tar file. A file that changes meanwhile has the content
        that was read."""
        return base64.b64decode(self.ask("pack", 60, folder=DATA)["tar"])

    def unpack(self, packed: bytes) -> None:
        """Adds what `pack` returned to its disk."""
        self.ask("unpack", 60, folder=DATA, tar=base64.b64encode(packed).decode())

    def _lost(self, why: str) -> EnvironmentFailed:
        return failed_with(f"the pod of {self.slot.name} {why}", self.log)


@final
class Pods:
    """The pods of a run, made when they are first needed; also the run's `Toxiproxies`.

    `ended` is called when a toxiproxy or its pod ends, with its name and the pod's container.
    """

    def __init__(
        self,
        layout: Layout,
        addresses: PodAddressing,
        *,
        engine: Engine,
        folder: RunFolder,
        prefix: str,
        ended: Callable[[str, str], None],
    ) -> None:
        self._layout = layout
        self._addresses = addresses
        self._engine = engine
        self._folder = folder
        self._prefix = prefix
        self._ended = ended
        self._pods: dict[str, Pod] = {}
        self._streams: list[Any] = []
        self._starting: dict[str, Future[Pod]] = {}
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._closing = False
        # Of an app, the program is in the pod itself.
        hosted = {slot.name for slot in layout.of(CLIENT) if not slot.app}
        from_clients = [x for x in layout.links if x.source in hosted]
        self._client_ports = {x: _FIRST_CLIENT_PORT + n for n, x in enumerate(from_clients)}

    @property
    def prefix(self) -> str:
        """The prefix of the names of all containers and volumes of a run."""
        return self._prefix

    def of(self, slot: Slot) -> Pod:
        """The slot's pod; made, without a toxiproxy, if there is none yet."""
        pod = self._pods.get(slot.name)
        return pod if pod is not None else self._make(slot, f"pod/{slot.name}")

    # ------------------------------------------------------------------------- as `Toxiproxies`

    def start(self, wanted: Mapping[str, Slot]) -> None:
        """See `Toxiproxies.start`; the pods are made with them."""
        for process, slot in wanted.items():
            self._starting[process] = self._pool.submit(self._start, process, slot)

    def ready(self, process: str) -> None:
        """See `Toxiproxies.ready`."""
        self._starting[process].result()

    def ask(self, process: str, method: str, path: str, body: object = None) -> Reply:
        """See `Toxiproxies.ask`."""
        answer = self._with(process).ask(
            "http", method=method, path=path, body=body, limit_s=API_LIMIT_S
        )
        if answer.get("hung"):
            raise Hung
        return Reply(answer["status"], answer["text"])

    def kill(self, process: str) -> None:
        """Does nothing: the next `start` of the process ends it.

        Only the pod's agent may signal it, and the agent kills the old toxiproxy before it starts
        a new one on the same socket.
        """

    def listen(self, link: Link) -> End:
        """See `Toxiproxies.listen`: as the pod of the link's source sees it."""
        source, target = self._layout.slot(link.source), self._layout.slot(link.target)
        if link in self._client_ports:
            return self._addresses.own(source), self._client_ports[link]
        return self._addresses.seen(source, target), link.port

    def upstream(self, link: Link) -> End:
        """See `Toxiproxies.upstream`."""
        return self._addresses.own(self._layout.slot(link.target)), link.port

    def log(self, process: str) -> Path:
        """See `Toxiproxies.log`."""
        return self._folder.log_of(process)

    # -------------------------------------------------------------------------------- workings

    def _with(self, process: str) -> Pod:
        return next(pod for pod in self._pods.values() if pod.toxiproxy == process)

    def _start(self, process: str, slot: Slot) -> Pod:
        pod = self._pods.get(slot.name) or self._make(slot, process)
        # From here on the pod's log is that of this toxiproxy, and its end is reported by this
        # name.
        pod.toxiproxy, pod.log = process, self._folder.log_of(process)
        pod.ask("proxy")
        return pod

    def _make(self, slot: Slot, log: str) -> Pod:
        """Creates and starts a slot's pod; its agent answers once it is up."""
        # The volume has the pod's name. It outlives every process of the slot, as a disk does.
        name = f"{self._prefix}-{slot.name}"
        self._engine.create_volume(name)
        hosts = {o.name: self._addresses.seen(slot, o) for o in self._layout.slots}
        network = Network(self._prefix, self._addresses.own(slot), hosts, self._published(slot))
        container = self._engine.create(
            Container(
                name=name,
                image=IMAGE,
                argv=_AGENT,
                volume=name,
                folder=MOUNT,
                environment={},
                network=network,
                takes_input=True,
            )
        )
        pod = Pod(slot, container, name, self._folder.log_of(log))

        def ended() -> None:
            pod.ended()
            # At the end of a run every agent is told to end, and none of these ends is a failure.
            if not self._closing:
                self._ended(pod.toxiproxy, container)

        stream = self._engine.attach(container, pod.received, pod.logged, ended)
        self._streams.append(stream)
        # Before the start: the first request may follow at once, and the agent reads it when it is
        # up.
        pod.opened(stream.send)
        self._engine.start(container)
        self._pods[slot.name] = pod
        return pod

    def _published(self, slot: Slot) -> Mapping[int, End]:
        """Which of a pod's ports this host reaches, and at which addresses."""
        links = {
            # On this host at the addresses of the process runtime, so client workers need no case
            # for docker.
            port: (self._addresses.seen(slot, self._layout.slot(link.target)), link.port)
            for link, port in self._client_ports.items()
            if link.source == slot.name
        }
        page = self._layout.metrics_port
        if page and slot.role != CLIENT:
            return links | {page: (self._addresses.outside(slot), page)}
        return links

    def save(self) -> None:
        """Copies every disk into the run's folder."""

        def one(pod: Pod) -> None:
            try:
                unpack(pod.pack(), self._folder.data_of(pod.slot.name))
            # the run has failed already, since the pod is gone
            except EnvironmentFailed as failed:
                pod.logged(f"its disk was not saved: {failed}\n".encode())

        list(self._pool.map(one, self._pods.values()))

    def close(self) -> None:
        """Ends every agent, and stops following them."""
        self._closing = True
        self._pool.shutdown(cancel_futures=True)
        for stream in self._streams:
            # All inputs are closed first, then all ends awaited: the agents end side by side.
            stream.finish()
        for stream in self._streams:
            stream.close(_END_LIMIT_S)


@final
@dataclass(frozen=True, slots=True)
class PodProber:
    """Probes from within the pods; the system's probe must be importable there by its module and
    name."""

    pods: Pods
    layout: Layout
    system: System

    def ask(self, asked: Mapping[Link, tuple[float, int]]) -> Mapping[Link, ProbeAnswer]:
        """See `Prober.ask`."""
        name = probe_name(probe_of(self.system))

        def there(pod: Pod, links: list[Link]) -> Mapping[Link, ProbeAnswer]:
            ends = [(*self.pods.listen(link), *asked[link]) for link in links]
            longest = max(asked[link][0] for link in links)
            # The answer comes after the slowest probe, so its patience is added to the limit.
            reply = pod.ask("probe", longest + _ANSWER_LIMIT_S, probe=name, ends=ends)
            if "absent" in reply:
                raise UsageError(
                    f"the probe {name} of the system {self.system.name} cannot be imported in the "
                    f"image {IMAGE} ({reply['absent']}): build the image with the package of the "
                    "probe, by ./dev images --with PACKAGE"
                )
            if "raised" in reply:
                raise raised(self.system, reply["raised"])
            answers = zip(links, reply["answers"], strict=True)
            return {link: ProbeAnswer(came, ms) for link, (came, ms) in answers}

        return self._everywhere(there, asked)

    def open_connections(self, links: Iterable[Link]) -> Mapping[Link, int]:
        """See `Prober.open_connections`."""

        def there(pod: Pod, links: list[Link]) -> Mapping[Link, int]:
            ends = {link: self.pods.listen(link) for link in links}
            counts = count_open(ends.values(), pod.ask("sockets")["text"])
            return {link: counts[end] for link, end in ends.items()}

        return self._everywhere(there, links)

    def direct(self, links: Sequence[Link]) -> Mapping[Link, int]:
        """See `Prober.direct`: a pod's toxiproxy and its node share a network, and the descriptors
        of neither are seen here."""
        return {}

    def _everywhere(
        self, there: Callable[[Pod, list[Link]], Mapping[Link, T]], links: Iterable[Link]
    ) -> Mapping[Link, T]:
        """Calls a function for every pod that dials one of these links, at once."""
        grouped: dict[str, list[Link]] = {}
        for link in links:
            grouped.setdefault(link.source, []).append(link)
        found: dict[Link, T] = {}
        if not grouped:
            return found
        pods = [self.pods.of(self.layout.slot(source)) for source in grouped]
        with ThreadPoolExecutor(len(pods)) as pool:
            for part in pool.map(there, pods, grouped.values()):
                found.update(part)
        return found


def named(process: str) -> Mapping[str, str]:
    """The environment variable that gives a process's container its name."""
    return {NAMED.decode().rstrip("="): process}
