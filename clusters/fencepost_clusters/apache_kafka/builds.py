"""Which Kafka is meant by `apache/kraft@...`: a release, a version of somebody's own, a folder, or
an image.

* `4.3.1`: a release, from Maven Central.
* `4.5.0-SNAPSHOT`, `7.9.0-ccs`: a version that Maven finds where its settings say, such as in the
  user's own repository.
* `/opt/kafka_2.13-4.4.0`, `~/kafka`, `./jars`: a release that was unpacked, a checkout after
  `./gradlew jar`, or a folder of jars. What has a slash in it, or begins with a dot or a tilde, is
  a path.
* `docker://apache/kafka:4.4.0`: an image in the layout of Kafka's own, on this machine's engine.
  Its nodes run in containers, by its Java; of the rest of it only the jars count.

A folder, and a version that is published again and again, change while their names stay. So such a
build is known by the jars that it had when it was named: by their names, sizes and times. They are
copied into the cache once. A build that is made anew is another one, also while runs of the former
one go on. An image is known by its id, and its jars are in the cache, too: the metadata of a run is
read by the schemas in them.

The version is read from the software, from the file in which Kafka's clients have it. What depends
on a release (settings, known findings) takes that of the version's first numbers, or the nearest.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fencepost import UsageError, cache_folder, named_image, named_path
from fencepost_clusters.java import alone, make_cache

_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_VERSION = re.compile(r"\d+\.\d+\.\d+[-.+][0-9A-Za-z.+-]+")
_SAYS = "kafka/kafka-version.properties"
"""In the jar of Kafka's clients."""
_BROKER, _CLIENTS = "kafka_2.*-*.jar", "kafka-clients-*.jar"
_NO_PROGRAM = re.compile(r"-(test|test-sources|test-fixtures|sources|scaladoc|javadoc)\.jar$")
_IN_CHECKOUT = (
    "core/build/libs/kafka_2.*.jar",
    "core/build/dependant-libs-2.*/*.jar",
    "clients/build/libs/kafka-clients-*.jar",
)
"""What `./gradlew jar` makes, and Kafka's own scripts run."""


@dataclass(frozen=True, slots=True)
class Build:
    """One Kafka: its version, as it says itself, and what it is made of."""

    version: str
    key: str
    """The name of its folder in the cache: it is the same as long as its jars are."""
    jars: tuple[Path, ...] = ()
    """Those to copy; none: Maven brings them."""
    image: str = ""
    """The image that its nodes run in, if it is somebody else's."""

    @property
    def release(self) -> tuple[int, ...]:
        """The release that its version is of, such as (4, 3)."""
        return tuple(map(int, re.findall(r"\d+", self.version)[:2]))


def released(version: str) -> Build:
    """A release from Maven Central."""
    return Build(version, version)


def named(name: str, environment: Mapping[str, str]) -> Build:
    """The build that is named behind an `@`.

    Raises UsageError for a folder or an image without a Kafka, or with several, for an image in
    which no node can run, and for anything that is neither a version, a path nor an image;
    EnvironmentFailed without the image, or the engine that has it.
    """
    if image := named_image(name):
        return _in_image(image, environment)
    folder = named_path(name)
    if folder is not None:
        return _in_folder(folder)
    if _RELEASE.fullmatch(name):
        return released(name)
    if not _VERSION.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a version of Kafka, such as 4.4.0 or 4.5.0-SNAPSHOT, nor a path, "
            "such as ./kafka, nor an image, such as docker://apache/kafka:4.4.0"
        )
    own = sorted(_maven_repository(environment).glob(f"org/apache/kafka/*/{name}/*.jar"))
    return Build(name, f"{name}-{_known_by(own)}" if own else name)


def _maven_repository(environment: Mapping[str, str]) -> Path:
    """The folder in which Maven keeps what `mvn install` and `./gradlew publishToMavenLocal`
    publish."""
    return Path(environment.get("HOME") or "/nowhere", ".m2", "repository")


def _in_folder(folder: Path) -> Build:
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: after @ stands a version of Kafka, or a folder")
    jars = _jars(folder)
    unbuilt = (folder / "gradlew").exists()
    also = ": run ./gradlew jar there first" if unbuilt else ", nor in libs/ below it"
    version = _version_of(_clients_of(jars, str(folder), also))
    return Build(version, str(Path("builds", _known_by(jars))), tuple(jars))


def _in_image(name: str, environment: Mapping[str, str]) -> Build:
    """The Kafka in an image; its jars are copied into the cache, unless they are there."""
    # Only here: it imports the package docker, which is an extra.
    from fencepost.images import open_image  # noqa: PLC0415
    from fencepost_clusters.apache_kafka.foreign_image import LIBS, check_runs  # noqa: PLC0415

    where = f"{LIBS} of the image {name}"
    with open_image(name, environment) as image:
        key = Path("images", image.id[:12])
        home = cache(environment) / key
        make_cache(home.parent)
        with alone(home.parent / f"{home.name}.lock"):
            if not home.exists():
                with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as made:
                    lib = Path(made, "whole", "lib")
                    lib.mkdir(parents=True)
                    image.copy(LIBS, lib)
                    _version_of(_clients_of(_jars(lib), where))
                    check_runs(image)
                    lib.parent.rename(home)
    version = _version_of(_clients_of(_jars(home / "lib"), where))
    return Build(version, str(key), image=name)


def cache(environment: Mapping[str, str]) -> Path:
    """The folder that has one folder per build."""
    return cache_folder(environment) / "kafka"


def _clients_of(jars: Sequence[Path], where: str, also: str = "") -> Path:
    """The jar of Kafka's clients among those of one Kafka. Raises UsageError."""
    brokers = [jar for jar in jars if jar.match(_BROKER)]
    clients = [jar for jar in jars if jar.match(_CLIENTS)]
    if not brokers or not clients:
        lacks = _CLIENTS if brokers else _BROKER
        raise UsageError(f"there is no Kafka in {where}, no {lacks}{also}")
    for several in (brokers, clients):
        if len(several) > 1:
            names = ", ".join(jar.name for jar in several)
            raise UsageError(f"there are several Kafkas in {where}: {names}")
    return clients[0]


def _jars(folder: Path) -> Sequence[Path]:
    """The jars of a folder that belong on a node's class path."""
    if (folder / "gradlew").exists():
        patterns: Sequence[str] = _IN_CHECKOUT
    elif (folder / "libs").is_dir():
        patterns = ("libs/*.jar",)
    else:
        patterns = ("*.jar",)
    kept = {
        jar.name: jar
        for jar in chain.from_iterable(map(folder.glob, patterns))
        if not _NO_PROGRAM.search(jar.name)
    }
    return [kept[name] for name in sorted(kept)]


def _known_by(jars: Sequence[Path]) -> str:
    """By what jars are known without reading them: their places, sizes and times."""
    seen = hashlib.sha256()
    for jar in jars:
        status = jar.stat()
        seen.update(f"{jar}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:12]


def _version_of(clients: Path) -> str:
    """The version that Kafka's clients say in their own jar."""
    try:
        with zipfile.ZipFile(clients) as jar:
            said = jar.read(_SAYS).decode("latin-1")
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, OSError) as damaged:
        raise UsageError(f"{clients} does not say of which version it is: {damaged}") from damaged
    found = re.search(r"^version=\s*(\S+)", said, re.MULTILINE)
    if found is None or not re.match(r"\d+\.\d+", found[1]):
        raise UsageError(f"{clients} does not say of which version it is, in {_SAYS}")
    return found[1]
