"""Connections that pass no link: a node that dials another one's own address escapes every fault.

A link's own measurements cannot show this. Its probe is stopped by the cut, and one honest
connection is enough for bytes to vanish in it. But the sockets of a node's process name the address
that it dialled: the one that its link listens at, or the other node's own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from fencepost.injection.probes import ESTABLISHED, TCP, End, as_in_proc
from fencepost.model.system.topology import Link

PROC = Path("/proc")
_SOCKET = "socket:["
_SESSION = 3
"""Which field behind the name of a process, in its `stat`, is its session."""


def direct(
    links: Mapping[Link, End], pids: Mapping[str, int], proc: Path = PROC
) -> Mapping[Link, int]:
    """How many connections the process of each link's source has to the target's own address.

    `links` have that address; `pids` are the processes by slot, each the leader of its session, as
    the supervisor starts them. Links without such a connection are left out.
    """
    # The table of connections names no process, only the inode of each socket. So a connection
    # belongs to a slot if its inode is among the open files of the slot's processes.
    sessions = {slot: _sockets(proc, pid) for slot, pid in pids.items()}
    dialled = _dialled((proc / TCP).read_text())
    found = {}
    for link, end in links.items():
        own = sessions.get(link.source, ())
        count = sum(1 for inode in dialled.get(as_in_proc(end), ()) if inode in own)
        if count:
            found[link] = count
    return found


def _dialled(shown: str) -> Mapping[str, Collection[str]]:
    """Remote end -> the inodes of the established sockets that dialled it, by /proc/net/tcp."""
    found: dict[str, set[str]] = {}
    for fields in map(str.split, shown.splitlines()[1:]):
        # Field 2 is the remote end, field 3 the state, field 9 the inode.
        if fields[3] == ESTABLISHED:
            found.setdefault(fields[2], set()).add(fields[9])
    return found


def _sockets(proc: Path, session: int) -> Collection[str]:
    """The inodes of all sockets that the processes of a session have open."""
    found: set[str] = set()
    # The whole session: a slot's program may be a shell script that starts the node as its child.
    for process in _of_session(proc, session):
        with suppress(OSError):  # it has ended meanwhile
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    name = os.readlink(descriptor)
                    if name.startswith(_SOCKET):
                        found.add(name.removeprefix(_SOCKET).rstrip("]"))
    return found


def _of_session(proc: Path, session: int) -> Iterator[Path]:
    for process in proc.iterdir():
        if process.name.isdigit():
            with suppress(OSError, IndexError):
                # The name of a process is in brackets and may itself have spaces and brackets: the
                # last bracket ends it.
                behind = (process / "stat").read_text().rpartition(")")[2].split()
                if behind[_SESSION] == str(session):
                    yield process
