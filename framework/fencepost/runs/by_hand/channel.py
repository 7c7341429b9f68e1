"""The socket by which a second terminal reaches a cluster in the hand, and how it is found.

    <temporary files>/fencepost-<user id>/        0700, the user's own
        <key of the run folder>.socket            0600, listened to while the cluster runs
        <key of the run folder>.run               a link to the run folder

The folder is one for each user and not the run's own, for two reasons: a second terminal finds the
cluster from wherever it is opened, and the path of a socket may have 107 bytes only, which that of
a run folder may exceed. Whoever opens the socket may break the cluster, so only its user can: the
folder must belong to the user, and be closed to all others.

A cluster that was killed leaves both files. Nothing listens there any more, so a second terminal is
refused, and says so; the next cluster that starts removes what dead ones left.
"""

from __future__ import annotations

import hashlib
import os
import selectors
import socket
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, final

from fencepost.model.disk import written_to
from fencepost.model.errors import EnvironmentFailed, FencepostError, UsageError
from fencepost.runs.by_hand.messages import (
    MOST_BYTES,
    Answer,
    Refused,
    Request,
    answer_from,
    line_of,
    request_from,
)

_LONGEST = 107
"""How many bytes the path of a socket may have, on Linux: the kernel's 108 with the last zero."""
_ANSWER_S = 1.0
"""How long one who asked may leave its answer unread before it is dropped: the run goes on
meanwhile."""


@final
@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the cluster of a run folder is met."""

    socket: Path
    link: Path
    folder: Path
    """The run folder."""

    def listens(self) -> bool:
        """Whether a cluster listens there; if not, its process has ended without its end."""
        with socket.socket(socket.AF_UNIX) as knocking:
            knocking.settimeout(_ANSWER_S)
            try:
                knocking.connect(os.fspath(self.socket))
            # A full queue is one of a cluster that is busy.
            except (BlockingIOError, TimeoutError):
                return True
            except OSError:
                return False
        return True


def meeting_folder() -> Path:
    """The user's folder of sockets, which is made if it is not there.

    Raises EnvironmentFailed for a folder that is another user's or open to others, and where it
    cannot be made.
    """
    folder = Path(tempfile.gettempdir()) / f"fencepost-{os.getuid()}"
    with written_to(folder), suppress(FileExistsError):
        folder.mkdir(0o700)
    # The name can be foreseen, so anybody may have made it, as a link to wherever.
    found = os.lstat(folder)
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not own or stat.S_IMODE(found.st_mode) & 0o077:
        raise EnvironmentFailed(
            f"{folder} is not a folder that only you can open: remove it, or name "
            "another folder for temporary files in TMPDIR"
        )
    return folder


def meeting_of(run_folder: Path) -> Meeting:
    """Where the cluster of that run folder is met, whether it runs or not. Raises as
    `meeting_folder` does, and for a folder whose path is too long for a socket."""
    run_folder = run_folder.resolve()
    key = hashlib.sha256(os.fsencode(run_folder)).hexdigest()[:16]
    folder = meeting_folder()
    path = folder / f"{key}.socket"
    if len(os.fsencode(path)) > _LONGEST:
        raise EnvironmentFailed(
            f"the path {path} is too long for a socket: name a shorter folder for temporary "
            "files in TMPDIR"
        )
    return Meeting(path, folder / f"{key}.run", run_folder)


def meetings() -> Sequence[Meeting]:
    """Those of all clusters of the user, dead ones too, in the order of their run folders."""
    found = []
    for link in meeting_folder().glob("*.run"):
        with suppress(OSError):  # its cluster has ended in this moment
            found.append(Meeting(link.with_suffix(".socket"), link, link.readlink()))
    return sorted(found, key=lambda one: one.folder)


def meeting_for(run_folder: Path | None) -> Meeting:
    """The running cluster of that folder, or else the only one that runs.

    Raises UsageError, with what to do, for none, for several, and for one that was killed.
    """
    if run_folder is not None:
        meeting = meeting_of(run_folder)
        if not meeting.link.is_symlink():
            raise UsageError(f"no cluster runs for {run_folder}: `fencepost cluster up` starts one")
        if not meeting.listens():
            raise _killed(meeting)
        return meeting
    known = meetings()
    living = [one for one in known if one.listens()]
    if len(living) == 1:
        return living[0]
    if living:
        names = ", ".join(str(one.folder) for one in living)
        raise UsageError(f"{len(living)} clusters run: name one by --run ({names})")
    if known:
        raise _killed(known[-1])
    raise UsageError("no cluster runs: `fencepost cluster up` starts one")


def _killed(meeting: Meeting) -> UsageError:
    return UsageError(
        f"no cluster runs: the process of the one in {meeting.folder} was ended before it could "
        f"judge its run; `fencepost report {meeting.folder}` judges what it left"
    )


def ask(meeting: Meeting, request: Request) -> Answer | None:
    """The cluster's answer, which may take long: a fault is measured first. None: the cluster has
    ended before it answered. Raises UsageError for an answer of another version."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.fspath(meeting.socket))
            connection.sendall(line_of(request))
            with connection.makefile("rb") as answering:
                line = answering.readline()
        except OSError:
            return None
    return answer_from(line) if line.endswith(b"\n") else None


@final
class Asked:
    """A request that waits for its one answer."""

    def __init__(self, request: Request, connection: socket.socket) -> None:
        self.request = request
        self._connection = connection

    def answer(self, answer: Answer) -> None:
        """Sends the answer. One who has gone meanwhile, or does not read it, gets none: there is
        nobody to tell."""
        _send(self._connection, answer)

    def drop(self) -> None:
        """Leaves it without an answer: the cluster has ended."""
        self._connection.close()


@final
class Channel:
    """The listening end, of the process that owns the run. For one thread, which never waits for
    one who asks: a request is taken once its whole line is there."""

    def __init__(self, meeting: Meeting, listening: socket.socket) -> None:
        self._meeting = meeting
        self._listening = listening
        self._parts: dict[socket.socket, bytes] = {}
        """What has come of each line so far."""
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(listening, selectors.EVENT_READ)

    @classmethod
    def open(cls, meeting: Meeting) -> Self:
        """Listens from now on, and removes what dead clusters left. Raises EnvironmentFailed where
        no socket can be made."""
        for other in meetings():
            if not other.listens():
                _remove(other)
        listening = socket.socket(socket.AF_UNIX)
        try:
            with written_to(meeting.socket):
                listening.bind(os.fspath(meeting.socket))
                # Before anybody can connect; the folder is closed to others in any case.
                meeting.socket.chmod(0o600)
                listening.listen()
                listening.setblocking(False)
                # The last step: second terminals look for the links.
                meeting.link.symlink_to(meeting.folder)
        except BaseException:
            listening.close()
            raise
        return cls(meeting, listening)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def take(self, wait_s: float) -> Sequence[Asked]:
        """The requests that are whole; waits for the first word of anybody for that long at
        most."""
        found = []
        for key, _ in self._waiting.select(wait_s):
            if key.fileobj is self._listening:
                self._accept()
            elif isinstance(key.fileobj, socket.socket):
                asked = self._read(key.fileobj)
                found += [asked] if asked else []
        return found

    def close(self) -> None:
        """Ends the listening, and removes the socket; requests that were taken can still be
        answered."""
        self._waiting.close()
        for connection in (self._listening, *self._parts):
            connection.close()
        self._parts.clear()
        _remove(self._meeting)

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except BlockingIOError:  # one who has gone before it was its turn
            return
        connection.setblocking(False)
        self._parts[connection] = b""
        self._waiting.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket) -> Asked | None:
        try:
            part = connection.recv(MOST_BYTES)
        except OSError:
            part = b""
        line = self._parts[connection] + part
        if part and b"\n" not in line and len(line) <= MOST_BYTES:
            self._parts[connection] = line
            return None
        self._waiting.unregister(connection)
        del self._parts[connection]
        try:
            if b"\n" not in line:
                raise UsageError(f"a request is one line of {MOST_BYTES} bytes at most")
            return Asked(request_from(line.partition(b"\n")[0]), connection)
        except FencepostError as refused:
            _send(connection, Refused(says=str(refused), exit_code=refused.exit_code))
            return None


def _send(connection: socket.socket, answer: Answer) -> None:
    with connection, suppress(OSError):
        connection.settimeout(_ANSWER_S)
        connection.sendall(line_of(answer))


def _remove(meeting: Meeting) -> None:
    meeting.link.unlink(missing_ok=True)
    meeting.socket.unlink(missing_ok=True)
