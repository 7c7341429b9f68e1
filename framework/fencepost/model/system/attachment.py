"""A cluster that Fencepost did not start: what a file says of it, and which faults that allows.

The problem. A fault needs a handle: a proxy to cut a link, a process to stop, a way to start it
again. Of its own clusters Fencepost has all of them; of somebody else's it has what the file names.
A fault without its handle would break the cluster and not mend it (a killed node that nobody starts
again), or do nothing and be believed. So the handles decide, before anything is touched.

How it works. `decoded` makes an `Attachment` of the file's text: frozen values, and a sentence for
each thing that makes no sense. `laid_out` makes the slots and links of it. `Attachment.lacks` says
which kinds of handle (`Handle`) no node has, and `check_signal` whether one node can get a signal.
All of it is pure: nothing here opens a connection or looks at a process.

    may_break = true
    bootstrap = ["127.0.0.1:29092"]

    [toxiproxy]
    url = "http://127.0.0.1:8474"

    [[node]]
    name = "broker-1"
    id = 1
    address = "127.0.0.1:19092"
    pid_file = "/run/broker-1.pid"
    logs = ["/var/log/broker-1/server.log"]

    [[link]]
    from = "clients"
    to = "broker-1"
    proxy = "clients-to-1"
    listen = "127.0.0.1:29092"

See docs/decisions/53-attached.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec
from msgspec import Struct, field

from fencepost.model.errors import UsageError, no_such
from fencepost.model.faults.handles import Handle
from fencepost.model.runtime import Signal
from fencepost.model.system.composed import Composed
from fencepost.model.system.topology import CLIENT, NAME, Layout, Link, Slot

ANY: Final = "attached"
"""What stands for the name of the system of attached clusters, where there is one: `attached@FILE`.
"""
CLIENTS: Final = "clients"
"""The slot of clients, as a link's `from` names it."""
OURS: Final = "fencepost-"
"""What all names begin with that an attached run gives, to toxics and in the cluster. Nothing else
is ever removed."""


class AttachedServer(Struct, frozen=True, forbid_unknown_fields=True):
    """The toxiproxy server whose proxies lie between the nodes: the URL of its API, and the
    container that it runs in, if it does: its connections are counted there."""

    url: str
    container: str = ""


class AttachedNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node. Its process is that of `container`, the one with the id `pid`, or the one whose id
    is in `pid_file`; with none of them it can be neither stopped nor ended.

    `address` is a listener past all proxies, by which its answers are read while its links are cut.
    `start` starts it again as the process of `pid_file`, or becomes its process; a container is
    started by its engine. `logs` are files in its system's own layout; a container's output is read
    without them. `utc`: their stamps are UTC, as in most containers, and not this machine's local
    time.
    """

    name: str
    id: int
    roles: tuple[str, ...] = ()
    address: str
    pid: int = 0
    pid_file: str = ""
    container: str = ""
    start: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    utc: bool | None = None

    @property
    def has_process(self) -> bool:
        """Whether its process can be found."""
        return bool(self.pid or self.pid_file or self.container)

    @property
    def can_start(self) -> bool:
        """Whether it can be started again."""
        return bool(self.container or self.start)

    @property
    def in_utc(self) -> bool:
        """Whether the stamps of its log are UTC."""
        return bool(self.container) if self.utc is None else self.utc


class AttachedLink(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={
        "source": "from", "target": "to"
    }
):  # fmt: skip
    """A link: the `proxy`, by its name, through which `source` reaches `target`. `listen` is where
    the harness reaches that proxy: the address that clients are told, for a link from clients."""

    source: str
    target: str
    proxy: str
    listen: str


class Attachment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """What the file of an attached cluster says; see the module.

    `settings` are those of the cluster by which its promises have bounds, where they are not the
    defaults. `engine` is the program that commands containers: docker, or one with its commands.
    """

    may_break: bool = False
    bootstrap: tuple[str, ...]
    toxiproxy: AttachedServer | None = None
    nodes: tuple[AttachedNode, ...] = field(name="node", default=())
    links: tuple[AttachedLink, ...] = field(name="link", default=())
    settings: Mapping[str, str] = field(default_factory=dict)
    engine: str = "docker"

    @cached_property
    def named(self) -> Mapping[str, AttachedNode]:
        """The nodes by name."""
        return {one.name: one for one in self.nodes}

    def proxied(self, link: Link) -> AttachedLink:
        """The proxy of a link of the layout; raises KeyError."""
        for one in self.links:
            if (one.source, one.target, _end(one.listen)[1]) == (
                link.source,
                link.target,
                link.port,
            ):
                return one
        raise KeyError(link)

    @property
    def lacks(self) -> Mapping[Handle, str]:
        """The kinds of handle that no node has, each with the reason."""
        whole = "Fencepost started none of its processes, and leaves their disks alone"
        found = {
            Handle.DISK: whole,
            Handle.SECOND: "a second process with a node's id is for clusters of Fencepost's own",
            Handle.FRAMES: "messages are held by Fencepost's own toxiproxy, from a connection's "
            "first byte on",
            Handle.POWER: "only a simulated machine loses its power",
        }
        if not self.links:
            found[Handle.LINKS] = "the file names no link, and so no proxy"
        if all(CLIENTS in (one.source, one.target) for one in self.links):
            found[Handle.PEERS] = "the file names no proxy between two nodes"
        if not any(node.has_process for node in self.nodes):
            found[Handle.PROCESS] = "the file names no process: give a node its pid_file, pid or "
            found[Handle.PROCESS] += "container"
        if not any(node.has_process and node.can_start for node in self.nodes):
            found[Handle.START] = "nothing starts a node again: give it `start`, or a container"
        return found

    def check_signal(self, slot: str, what: Signal) -> None:
        """Raises UsageError for a signal that a node cannot get, or would not come back from."""
        node = self.named.get(slot)
        if node is None:
            return  # a client's process is the harness's own
        if not node.has_process:
            raise UsageError(
                f"{slot} gets no signal: the file names neither its pid_file, pid nor container"
            )
        if what not in (Signal.STOP, Signal.CONT) and not node.can_start:
            raise UsageError(
                f"{slot} gets no {what}: nothing starts it again (give it `start`, or a container)"
            )

    def check_links(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Raises UsageError for two nodes that no proxy lies between: they would go on talking past
        the fault."""
        joined = {frozenset((one.source, one.target)) for one in self.links}
        for source, target in pairs:
            if frozenset((source, target)) not in joined:
                raise UsageError(f"no proxy lies between {source} and {target}")


@runtime_checkable
class Attached(Protocol):
    """A system whose nodes run already: an attachment says where, and Fencepost starts none.

    It is `Launchable`, too: the command of a node is what starts it again.
    """

    def attachment(self) -> Attachment:
        """What its file says; raises UsageError if it was not named with one."""
        ...

    @property
    def makes(self) -> Sequence[str]:
        """What the load of a run makes in the cluster, in words; all of it is removed."""
        ...

    def drafted(self, stack: Composed) -> str:
        """The first draft of a file for a stack of containers; what it cannot know is a comment.
        It does not say that the cluster may be broken."""
        ...

    def tidying(self) -> Sequence[str]:
        """The argv of a program that removes from the cluster what runs have made in it, all of
        whose names begin with `OURS`, and prints the name of each; its exit code is 0 if none is
        left."""
        ...

    def surveyed(self) -> Survey:
        """What its nodes say now, by questions that change nothing.

        Raises EnvironmentFailed for a node that does not answer.
        """
        ...


class Survey(Struct, frozen=True, kw_only=True):
    """What an attached cluster has, as its nodes say: everything that is the user's, by name, and
    what is `wrong` with it, a sentence each. `ours` are names of ours that are there already."""

    has: tuple[str, ...]
    ours: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


def decoded(text: bytes) -> Attachment:
    """The attachment in the text of a file.

    Raises UsageError, in one sentence, for text that is no TOML, a key that is unknown, lacking or
    of another type, and for what makes no sense.
    """
    try:
        found = msgspec.toml.decode(text, type=Attachment)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as wrong:
        raise UsageError(" ".join(str(wrong).split())) from None
    _check(found)
    return found


def attachment_in(path: Path) -> Attachment:
    """The attachment in a file, whose relative paths are from its folder; raises UsageError as
    `decoded`, with the file."""
    try:
        text = path.read_bytes()
    except OSError as failed:
        raise UsageError(f"{path} cannot be read: {failed.strerror}") from None
    try:
        found = decoded(text)
    except UsageError as wrong:
        raise UsageError(f"{path}: {wrong}") from None
    folder = path.absolute().parent
    nodes = tuple(
        msgspec.structs.replace(
            one,
            pid_file=str(folder / one.pid_file) if one.pid_file else "",
            logs=tuple(str(folder / log) for log in one.logs),
        )
        for one in found.nodes
    )
    return msgspec.structs.replace(found, nodes=nodes)


def check_consent(attachment: Attachment) -> None:
    """Raises UsageError unless the file says that the cluster may be broken."""
    if not attachment.may_break:
        raise UsageError(
            "nothing was touched: the file does not say `may_break = true`, so this cluster may be "
            "somebody's"
        )


def laid_out(attachment: Attachment, role: str) -> Layout:
    """The slots and links of an attached cluster: a link's port is the one at which its proxy
    listens. `role` is that of nodes to which the file gives none."""
    slots = [
        Slot(
            node.name,
            (node.roles or (role,))[0],
            node.id,
            index,
            also=tuple((role, node.id) for role in node.roles[1:]),
        )
        for index, node in enumerate(attachment.nodes, 1)
    ]
    clients = Slot(CLIENTS, CLIENT, -1, len(slots) + 1)
    links = tuple(Link(one.source, one.target, _end(one.listen)[1]) for one in attachment.links)
    return Layout((*slots, clients), links, bootstrap=tuple(_first(attachment)))


def seen(attachment: Attachment, source: str, target: str) -> tuple[str, int]:
    """Where `source` reaches `target`: its proxy, or the node itself if there is none."""
    for one in attachment.links:
        if (one.source, one.target) == (source, target):
            return _end(one.listen)
    node = attachment.named.get(target)
    return _end(node.address) if node else ("", 0)


def end_of(address: str) -> tuple[str, int]:
    """The host and the port of `host:port`; raises UsageError for anything else."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{address!r} is no address: write host:port")
    return host, int(port)


def _end(address: str) -> tuple[str, int]:
    return end_of(address)


def _first(attachment: Attachment) -> Sequence[tuple[str, int]]:
    """The slots to which clients connect first: those of the bootstrap addresses."""
    found = []
    wanted = {_end(one) for one in attachment.bootstrap}
    for node in attachment.nodes:
        end = seen(attachment, CLIENTS, node.name)
        if end in wanted:
            found.append((node.name, end[1]))
    return found


def _check(found: Attachment) -> None:
    """Raises UsageError for what makes no sense together."""
    if not found.nodes:
        raise UsageError("the file names no node: write a table [[node]] for each")
    for node in found.nodes:
        _check_node(node)
    for what, values in (
        ("name", [one.name for one in found.nodes]),
        ("id", [str(one.id) for one in found.nodes]),
    ):
        if twice := next((one for one in values if values.count(one) > 1), None):
            raise UsageError(f"two nodes have the {what} {twice}")
    if found.links and found.toxiproxy is None:
        raise UsageError("the file names links and no toxiproxy: write [toxiproxy] with its url")
    if found.toxiproxy is not None:
        url = found.toxiproxy.url
        if not url.startswith("http://"):
            raise UsageError(f"the url of toxiproxy is {url!r}: write http://host:port")
        end_of(url.removeprefix("http://").rstrip("/"))
    proxies, ends = set(), set()
    known = {*found.named, CLIENTS}
    for link in found.links:
        for name in (link.source, link.target):
            if name not in known:
                raise no_such("node", name, known)
        if link.target in (link.source, CLIENTS):
            raise UsageError(f"the link from {link.source} to {link.target} joins no two nodes")
        if "/" in link.proxy:
            raise UsageError(
                f"the proxy {link.proxy} cannot be changed: toxiproxy's API finds none whose name "
                "has a slash"
            )
        if link.proxy in proxies:
            raise UsageError(
                f"the proxy {link.proxy} is in two links: a cut of one would cut the other, too"
            )
        if (link.source, link.target) in ends:
            raise UsageError(f"two links lead from {link.source} to {link.target}")
        proxies.add(link.proxy)
        ends.add((link.source, link.target))
        end_of(link.listen)
    reached = {seen(found, CLIENTS, node.name) for node in found.nodes}
    if not found.bootstrap:
        raise UsageError("the file names no bootstrap address")
    for address in found.bootstrap:
        if end_of(address) not in reached:
            raise UsageError(
                f"the bootstrap address {address} is neither where a link from {CLIENTS} listens "
                "nor the address of a node without one"
            )


def _check_node(node: AttachedNode) -> None:
    if not NAME.fullmatch(node.name) or node.name == CLIENTS:
        raise UsageError(f"the node's name {node.name!r} is not lower-case words joined by '-'")
    if len(set(node.roles)) < len(node.roles):
        raise UsageError(f"{node.name} has a role twice")
    if sum(map(bool, (node.pid, node.pid_file, node.container))) > 1:
        raise UsageError(f"{node.name} has one of pid, pid_file and container, not several")
    if node.pid < 0 or node.id < 0:
        raise UsageError(f"{node.name} has a negative pid or id")
    if node.start and not (node.pid or node.pid_file):
        raise UsageError(f"{node.name} has `start`, and neither a pid nor a pid_file")
    end_of(node.address)
