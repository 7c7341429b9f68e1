"""The container engine: finding it, sending it requests, and removing what dead runs left.

The sockets of Docker, rootless Docker and Podman (in its Docker-compatible form) are found through
the usual variables and places. Everything that is created carries two labels: the run, and its
owner, which is this process (by machine, process id and start). Objects without these labels are
never touched.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final, final
from urllib.parse import urlsplit

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.types import IPAMConfig, IPAMPool, Mount
from requests import RequestException

from fencepost.model.errors import EnvironmentFailed

RUN_LABEL = "fencepost.run"
OWNER_LABEL = "fencepost.owner"
JOINS_LABEL = "fencepost.joins"
_OLDEST_CLIENT = (7, 1)
CALL_LIMIT_S = 60
"""How long a call of the engine may take; a busy engine starts a container in seconds, not in
minutes."""
_CONNECTIONS = 64
_STDOUT: Final = 1
_FRAME = struct.Struct(">BxxxI")
_GONE = (404, 409)
"""The engine's status codes for a container that does not exist, or does not run."""


@dataclass(frozen=True, slots=True)
class Network:
    """A container's network, which belongs to its run, and its address there."""

    name: str
    address: str
    hosts: Mapping[str, str]
    published: Mapping[int, tuple[str, int]]
    """Its port -> an address of this host's loopback, and the port there."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container to create, without root and without privileges.

    `joins` is the container whose network and processes it shares, if it has no `network` itself.
    """

    name: str
    image: str
    argv: Sequence[str]
    volume: str
    folder: str
    environment: Mapping[str, str] = field(default_factory=dict)
    network: Network | None = None
    joins: str = ""
    takes_input: bool = False
    work_dir: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """An object of the engine with Fencepost's labels: `kind` is container, pod (a container that
    others join), volume or network."""

    kind: str
    id: str
    name: str
    run: str
    owner: str

    @property
    def abandoned(self) -> bool:
        """Whether its owner was a process of this host that is gone."""
        return is_gone(self.owner)

    def __str__(self) -> str:
        return f"the {self.kind} {self.name} of run {self.run}"


@final
class Stream:
    """The standard streams of one container, followed by a thread from before its start.

    `stdout` and `stderr` are called with bytes as they come, `ended` once, after the last of them.
    """

    def __init__(
        self,
        held: Any,
        stdout: Callable[[bytes], None],
        stderr: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self._held = held
        self._socket: socket.socket = held._sock
        # A node may write nothing for minutes.
        self._socket.settimeout(None)
        self._stdout, self._stderr, self._ended = stdout, stderr, ended
        self._thread = Thread(target=self._follow, daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        """Sends to the container's standard input; raises OSError if the container is gone."""
        self._socket.sendall(data)

    def finish(self) -> None:
        """Closes its standard input; its output still arrives."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self, patience_s: float = 0) -> None:
        """Stops following, once the container has ended or the limit has passed; may be called
        twice."""
        # With patience, the container's last output still comes; the shutdown then ends a read that
        # waits.
        self._thread.join(patience_s)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._held._response.close()  # closing it also closes what depends on it

    def _follow(self) -> None:
        # Both streams come through one socket, in frames: one byte for the stream, three of zeros,
        # and the length in four bytes, big-endian.
        while (head := self._exactly(_FRAME.size)) is not None:
            which, size = _FRAME.unpack(head)
            data = self._exactly(size)
            if data is None:
                break
            (self._stdout if which == _STDOUT else self._stderr)(data)
        self._ended()

    def _exactly(self, size: int) -> bytes | None:
        """Exactly that many bytes; None if the stream ends or breaks earlier."""
        data = bytearray()
        while len(data) < size:
            try:
                more = self._socket.recv(size - len(data))
            except OSError:
                return None
            if not more:
                return None
            data += more
        return bytes(data)


@final
class Engine:
    """One engine, for one run or none; several threads may use it."""

    def __init__(self, client: docker.APIClient, run: str = "") -> None:
        self._client = client
        self._labels = labels(run)

    @property
    def version(self) -> str:
        """Such as `20.10.24`."""
        with errors_of("tell its version"):
            return str(self._client.version()["Version"])

    def has_image(self, image: str) -> bool:
        with errors_of(f"show the image {image}"):
            return bool(self._client.images(image, quiet=True))

    def image_label(self, image: str, label: str, remedy: str = "build it by ./dev images") -> str:
        """A label of an image, or nothing; raises EnvironmentFailed, with the remedy, when there is
        no such image."""
        try:
            with errors_of(f"show the image {image}"):
                shown = self._client.inspect_image(image)
        except EnvironmentFailed as failed:
            if isinstance(failed.__cause__, NotFound):
                raise EnvironmentFailed(f"there is no image {image!r}: {remedy}") from failed
            raise
        return str((shown["Config"].get("Labels") or {}).get(label, ""))

    def create_network(self, name: str, subnet: str, gateway: str) -> bool:
        """Creates a network; returns False if another network overlaps it."""
        pool = IPAMPool(subnet=subnet, gateway=gateway)
        try:
            self._client.create_network(
                name,
                driver="bridge",
                ipam=IPAMConfig(pool_configs=[pool]),
                labels=self._labels,
                # The containers need no access to the outside.
                options={"com.docker.network.bridge.enable_ip_masquerade": "false"},
            )
        except APIError as refused:
            if "overlap" in str(refused).lower() or "already" in str(refused).lower():
                return False
            raise _refusal("create a network", refused) from refused
        return True

    def create_volume(self, name: str) -> None:
        with errors_of(f"create the volume {name}"):
            self._client.create_volume(name, labels=self._labels)

    def create(self, wanted: Container) -> str:
        """Creates a container; returns its id."""
        network = wanted.network
        shared = f"container:{wanted.joins}" if wanted.joins else None
        host = self._client.create_host_config(
            network_mode=shared or (network.name if network else "none"),
            pid_mode=shared,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            # Output goes over the attached stream alone. The engine would keep a second copy of it
            # otherwise.
            log_config={"Type": "none"},
            mounts=[Mount(wanted.folder, wanted.volume)],
            extra_hosts=dict(network.hosts) if network else None,
            port_bindings=dict(network.published) if network else None,
        )
        place = None
        if network is not None:
            end = self._client.create_endpoint_config(ipv4_address=network.address)
            place = self._client.create_networking_config({network.name: end})
        with errors_of(f"create the container {wanted.name}"):
            created = self._client.create_container(
                wanted.image,
                list(wanted.argv),
                name=wanted.name,
                environment=dict(wanted.environment),
                labels=self._labels | ({JOINS_LABEL: wanted.joins} if wanted.joins else {}),
                host_config=host,
                networking_config=place,
                ports=list(network.published) if network else None,
                # A container that shares another one's network has that one's host name; the engine
                # refuses both.
                hostname=None if shared else wanted.name,
                stdin_open=wanted.takes_input,
                working_dir=wanted.work_dir or None,
            )
        return str(created["Id"])

    def attach(
        self,
        container: str,
        stdout: Callable[[bytes], None],
        stderr: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> Stream:
        """Follows a container that is not started yet; see `Stream`."""
        wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1, "logs": 0}
        with errors_of("attach to a container"):
            return Stream(
                self._client.attach_socket(container, params=wanted), stdout, stderr, ended
            )

    def start(self, container: str) -> int:
        """Starts it; returns its process id on the engine's machine."""
        with errors_of("start a container"):
            self._client.start(container)
            return int(self._client.inspect_container(container)["State"]["Pid"])

    def kill(self, container: str, signal: int) -> bool:
        """Sends a signal; returns whether the container ran."""
        try:
            self._client.kill(container, signal)
        except APIError as refused:
            if refused.status_code in _GONE:
                return False
            raise _refusal("signal a container", refused) from refused
        except (DockerException, RequestException) as failed:
            raise EnvironmentFailed(f"the container engine broke off: {failed}") from failed
        return True

    def exit_code(self, container: str) -> int:
        """Waits for its end, which must be close, and returns its exit code."""
        with errors_of("wait for a container"):
            return int(self._client.wait(container)["StatusCode"])

    def remove(self, left: Leftover) -> None:
        """Ends and removes it, unless it is gone or another call is removing it."""
        try:
            match left.kind:
                case "container" | "pod":
                    self._client.remove_container(left.id, force=True, v=True)
                case "volume":
                    self._client.remove_volume(left.id, force=True)
                case "network":
                    self._client.remove_network(left.id)
        except NotFound:
            return
        except APIError as refused:
            # Another run's cleaning may have chosen the same leftover. It is being removed, which
            # is all that is wanted.
            if "in progress" not in str(refused):
                raise _refusal(f"remove {left}", refused) from refused
        except (DockerException, RequestException) as failed:
            raise EnvironmentFailed(f"the container engine broke off: {failed}") from failed

    def leftovers(self) -> Sequence[Leftover]:
        """Every object with Fencepost's labels, those of live runs too, in the order in which they
        must be removed."""
        wanted = {"label": [RUN_LABEL, OWNER_LABEL]}
        found: list[Leftover] = []
        with errors_of("list what runs left"):
            for one in self._client.containers(all=True, filters=wanted):
                name = one["Names"][0].strip("/") if one.get("Names") else one["Id"][:12]
                kind = "container" if JOINS_LABEL in one["Labels"] else "pod"
                found.append(_leftover(kind, one["Id"], name, one))
            for one in self._client.volumes(filters=wanted)["Volumes"] or ():
                found.append(_leftover("volume", one["Name"], one["Name"], one))
            for one in self._client.networks(filters=wanted):
                found.append(_leftover("network", one["Id"], one["Name"], one))
        return found

    def clear(self, wanted: Callable[[Leftover], bool]) -> Sequence[Leftover]:
        """Removes the selected objects with Fencepost's labels, and returns them.

        Raises EnvironmentFailed for the first object that could not be removed, after trying all.
        """
        gone = [left for left in self.leftovers() if wanted(left)]
        failures: list[EnvironmentFailed] = []

        def remove(left: Leftover) -> None:
            try:
                self.remove(left)
            except EnvironmentFailed as failed:
                failures.append(failed)

        # In the order of use: a container joins its pod, and both use volume and network, which the
        # engine does not remove while they are in use.
        for kind in ("container", "pod", "volume", "network"):
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(remove, [left for left in gone if left.kind == kind]))
        if failures:
            raise failures[0]
        return gone

    def close(self) -> None:
        self._client.close()


def connect(environment: Mapping[str, str], run: str = "") -> Engine:
    """The engine, for a run."""
    return Engine(open_client(environment), run)


def open_client(environment: Mapping[str, str]) -> docker.APIClient:
    """The engine that DOCKER_HOST or CONTAINER_HOST names, otherwise the first socket found.

    Raises EnvironmentFailed, in one sentence, if there is none, or for a client that is too old.
    """
    check_client(docker.__version__)
    tried = []
    for url in places(environment):
        why = _closed(url)
        if why:
            tried.append(f"{url} ({why})")
            continue
        try:
            return docker.APIClient(
                url, version="auto", timeout=CALL_LIMIT_S, max_pool_size=_CONNECTIONS
            )
        except (DockerException, RequestException) as failed:
            tried.append(f"{url} ({' '.join(str(failed).split())})")
    raise EnvironmentFailed(
        f"no container engine answers: tried {', '.join(tried)}; start one, or name its socket "
        "in DOCKER_HOST"
        if tried
        else "there is no container engine: neither DOCKER_HOST nor CONTAINER_HOST is set, and "
        "there is no socket of Docker or Podman in its usual place"
    )


def check_client(version: str) -> None:
    """Raises EnvironmentFailed for a package `docker` before 7.1: together with `requests` 2.32 and
    newer it opens no socket, and its error speaks of a URL scheme."""
    if tuple(map(int, version.split(".")[:2])) < _OLDEST_CLIENT:
        raise EnvironmentFailed(
            f"the Python package docker {version} is too old to talk to a container engine: "
            "pip install 'docker>=7.1'"
        )


def places(environment: Mapping[str, str]) -> Iterator[str]:
    """The addresses to try; only the named one if one is named."""
    named = environment.get("DOCKER_HOST") or environment.get("CONTAINER_HOST")
    # A named engine is the only one that is tried: another one would hide that it does not answer.
    if named:
        host = urlsplit(named).hostname or ""
        local = named.startswith("unix://") or host == "localhost" or host.startswith("127.")
        if not local:
            raise EnvironmentFailed(
                f"the container engine at {named} is on another machine, whose loopback would "
                "have its published ports: clients here could not reach them"
            )
        yield named
        return
    usual = [Path("/var/run/docker.sock"), Path("/run/podman/podman.sock")]
    if environment.get("XDG_RUNTIME_DIR"):
        own = Path(environment["XDG_RUNTIME_DIR"])
        usual[1:1] = [own / "docker.sock", own / "podman" / "podman.sock"]
    for path in usual:
        if path.exists():
            yield f"unix://{path}"


def _closed(url: str) -> str:
    """Why a socket cannot be opened; empty if it can, or if the address is not a socket.

    The package's own message is less clear, and it leaves its end of the socket open.
    """
    if not url.startswith("unix://"):
        return ""
    with socket.socket(socket.AF_UNIX) as knocking:
        try:
            knocking.connect(url.removeprefix("unix://"))
        except FileNotFoundError:
            return "there is no such socket"
        except PermissionError:
            return "this user is not allowed to open it"
        except OSError as refused:
            return refused.strerror or str(refused)
    return ""


def owner() -> str:
    """A unique name of this process: host, boot, process-id namespace, process id, start.

    The namespace is the one in which process ids are valid. Raises EnvironmentFailed without /proc.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))
    except OSError as failed:
        raise EnvironmentFailed(f"containers are owned by processes of /proc: {failed}") from failed
    me = os.getpid()
    # Process ids are used again, also after a reboot, and are different in each namespace. With the
    # boot, the namespace and the start, no later process is taken for this one.
    return "/".join([socket.gethostname(), boot, namespace, str(me), _started(me)])


def is_gone(name: str) -> bool:
    """Whether the owner was a process of this host and is gone; False if unknown."""
    if name.count("/") != 4:
        return False
    host, boot, namespace, process, started = name.split("/")
    my_host, my_boot, my_namespace = owner().split("/")[:3]
    # An engine may serve several hosts or namespaces. Whether an owner there lives cannot be seen
    # from here, and a live run's containers must never be removed.
    if host != my_host or (boot == my_boot and namespace != my_namespace):
        return False
    return boot != my_boot or _started(int(process)) != started


def _started(process: int) -> str:
    """When a process started, in ticks since boot; empty if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # Field 22 of `stat` in all; these begin behind the name, at field 3.
    return "" if fields[0] in "ZX" else fields[19]


def labels(run: str) -> dict[str, str]:
    """The labels of what a run creates, by which it is found if this process dies."""
    return {RUN_LABEL: run, OWNER_LABEL: owner()}


def _leftover(kind: str, identity: str, name: str, shown: Mapping[str, Any]) -> Leftover:
    labels = shown.get("Labels") or {}
    return Leftover(kind, identity, name, labels[RUN_LABEL], labels[OWNER_LABEL])


def _refusal(what: str, refused: APIError) -> EnvironmentFailed:
    why = str(refused.explanation or refused).strip()
    return EnvironmentFailed(f"the container engine refused to {what}: {why}")


@contextmanager
def errors_of(what: str, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Converts the package's errors to Fencepost's, except those named."""
    try:
        yield
    except but:
        raise
    except APIError as refused:
        raise _refusal(what, refused) from refused
    except (DockerException, RequestException) as failed:
        raise EnvironmentFailed(f"the container engine broke off: {failed}") from failed
