"""Images that somebody else made: what is in one, and an image that is made on it.

What is in an image is read out of a container that is created and never started, so nothing of the
image runs for it.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import final

import docker
from docker.errors import NotFound

from fencepost.model.errors import EnvironmentFailed
from fencepost.runtimes.docker.engine import errors_of, labels, open_client

_NEVER_RUN = "/nothing"
_LAST_LINES = 15
_BUILD_LIMIT_S = 300
"""How long a step of a build may say nothing."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""The engine shows what a program writes to standard error in red."""
_OF_ENGINE = (" --->", "Removing intermediate container")
IN_FOLDER = 2
"""How many parts the path of a file has in the archive of its folder: `./a.jar`, `libs/a.jar`."""


@final
@dataclass(frozen=True, slots=True)
class Image:
    """An image on this machine's engine; `open_image` makes it, and it is of use as long as that
    is open."""

    name: str
    id: str
    """64 hexadecimal digits: another image of the same name has other ones."""
    environment: Mapping[str, str]
    """The variables that its programs get."""
    _client: docker.APIClient = field(repr=False)
    _container: str = field(repr=False)

    def has(self, path: str) -> bool:
        """Whether it has a file, a folder or a link of this path."""
        place = f"/v{self._client.api_version}/containers/{self._container}/archive"
        with errors_of(f"look for {path} in the image {self.name}"):
            # The package has no call that only asks: its own begins to read all of it.
            answer = self._client.head(f"{self._client.base_url}{place}", params={"path": path})
        return bool(answer.ok)

    def copy(self, folder: str, into: Path) -> None:
        """Copies the files of a folder, without those of folders below it, into a folder of this
        machine. Of a folder that is not there it copies nothing."""
        if not self.has(folder):
            return
        with TemporaryFile() as kept:
            with errors_of(f"read {folder} of the image {self.name}"):
                for part in self._client.get_archive(self._container, f"{folder}/.")[0]:
                    kept.write(part)
            kept.seek(0)
            with tarfile.open(fileobj=kept) as tar:
                for entry in tar:
                    # An image is somebody else's: only the last part of a path counts here, and
                    # none of its links and devices is made.
                    path = PurePosixPath(entry.name)
                    content = tar.extractfile(entry) if entry.isfile() else None
                    if content is not None and len(path.parts) <= IN_FOLDER:
                        (into / path.name).write_bytes(content.read())

    def extended(self, tag: str) -> bool:
        """Whether there is an image of this tag, such as `extend` makes."""
        return bool(self._client.images(tag, quiet=True))

    def extend(self, tag: str, dockerfile: str, files: Mapping[str, Path | str]) -> None:
        """Builds an image by a Dockerfile, without a network.

        `files` is the Dockerfile's context: a path there -> a file of this machine, or, as text,
        the target of a link. Raises EnvironmentFailed, with what the engine said last, if a step
        fails.
        """
        said: list[str] = []
        failed = False
        with errors_of(f"build {tag}"), TemporaryFile() as context:
            with tarfile.open(fileobj=context, mode="w") as tar:
                _add(tar, "Dockerfile", dockerfile.encode())
                for path, source in files.items():
                    _add(tar, path, source if isinstance(source, str) else source.read_bytes())
            context.seek(0)
            progress = self._client.build(
                fileobj=context, custom_context=True, tag=tag, network_mode="none", rm=True,
                forcerm=True, decode=True, timeout=_BUILD_LIMIT_S,
            )  # fmt: skip
            for line in progress:
                said += [str(line[key]) for key in ("stream", "error") if line.get(key)]
                failed = failed or "error" in line
        if failed:
            raise EnvironmentFailed(f"no image could be made on {self.name}", _last_said(said))


@contextmanager
def open_image(name: str, environment: Mapping[str, str]) -> Iterator[Image]:
    """Looks into an image; raises EnvironmentFailed without an engine, or if it has no such image:
    none is pulled."""
    client = open_client(environment)
    try:
        try:
            with errors_of(f"show the image {name}", but=NotFound):
                shown = client.inspect_image(name)
        except NotFound:
            raise EnvironmentFailed(
                f"there is no image {name!r}: pull it, or build it, first"
            ) from None
        with errors_of(f"create a container of {name}"):
            # Some command must be named, or an image that names none is refused. It never runs.
            created = client.create_container(
                shown["Id"], [_NEVER_RUN], network_disabled=True, labels=labels("image")
            )
        container = str(created["Id"])
        try:
            variables = (one.partition("=") for one in shown["Config"].get("Env") or ())
            yield Image(
                name,
                str(shown["Id"]).rpartition(":")[2],
                {variable: value for variable, _, value in variables},
                client,
                container,
            )
        finally:
            with errors_of("remove a container"):
                client.remove_container(container, v=True)
    finally:
        client.close()


def _last_said(said: Sequence[str]) -> str:
    """What the program of the step that failed has printed, or else the engine's own words."""
    *lines, error = _COLOUR.sub("", "".join(said)).splitlines()
    begun = max((at for at, line in enumerate(lines) if line.startswith("Step ")), default=-1)
    own = [line for line in lines[begun + 1 :] if line and not line.startswith(_OF_ENGINE)]
    return "\n".join(own[-_LAST_LINES:] or [error])


def _add(tar: tarfile.TarFile, path: str, content: bytes | str) -> None:
    entry = tarfile.TarInfo(path)
    if isinstance(content, str):
        entry.type, entry.linkname = tarfile.SYMTYPE, content
        tar.addfile(entry)
    else:
        entry.size, entry.mode = len(content), 0o644
        tar.addfile(entry, io.BytesIO(content))
