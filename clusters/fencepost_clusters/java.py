"""For programs that run on Java: finds a Java, and downloads jars from Maven Central.

Jars are kept below `$XDG_CACHE_HOME/fencepost` (`~/.cache` unless set). Maven downloads them. A jar
in the cache needs neither network nor Maven. A JVM passes over a damaged jar without a word, and
says later that a class is missing. So jars are checked before a start.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Timer
from xml.sax.saxutils import escape

from fencepost import EnvironmentFailed, Place, java_program, last_words

JAVA_LEAST = 17
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_QUIETLY = ("-B", "-q", "-Dstyle.color=never")
_MAVEN_LIMIT_S = 480
_LAST_LINES = 15
_SUMS = "jars.sha256"
_NO_ARTIFACT = re.compile(r"Could not find artifact (\S+)|(\S+) was not found in ")
"""What Maven prints the first time, and what it prints from then on."""
_NEWER_JAVA = re.compile(r"UnsupportedClassVersionError.* \(class file version (\d+)")
_OF_THE_JVM = re.compile(r"VM warning: |^\[[0-9.,]+s\]\[(warning|error) *\]")
_JAVA_OF_CLASS_FILES = 44
"""Java 17 has class files of version 61, Java 21 those of 65."""
NODE_OPTIONS = (
    "-Djdk.net.hosts.file=hosts",
    "-Djava.security.properties=java.security",
    "-Djava.io.tmpdir=tmp",
)
"""The options of each node, by files of its work folder (`resolver_files`).

A library of compression unpacks its machine code into the folder of temporary files, and loads it
from there: from a /tmp that is mounted noexec it cannot, and each topic with snappy or zstd fails.
"""
NODE_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "CLASSPATH": ""}
"""By its locale a JVM decodes the names of files, and writes figures and dates into its log."""
_OPTIONS_OF_ALL = frozenset({"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"})
"""Variables that each JVM takes for options of its own; no node gets them."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A jar on Maven Central."""

    group: str
    name: str
    version: str

    @property
    def jar(self) -> str:
        """The name of its file."""
        return f"{self.name}-{self.version}.jar"


def properties(values: Mapping[str, str]) -> str:
    """A file of properties, as `java.util.Properties` reads it: each value comes back as it is.

    Its reader takes bytes for Latin-1, a backslash for the beginning of an escape, and drops blanks
    before a value.
    """
    return "".join(f"{_escaped(name, ' =:#!')}={_value(text)}\n" for name, text in values.items())


def _value(text: str) -> str:
    rest = text.lstrip(" ")
    return "\\ " * (len(text) - len(rest)) + _escaped(rest, "")


def _escaped(text: str, also: str) -> str:
    """Text in printable ASCII; characters beyond it as their UTF-16 units."""
    return "".join(
        f"\\{one}" if one in also or one == "\\"
        else one if " " <= one <= "~"
        else "".join(f"\\u{unit:04x}" for unit in _units(one))
        for one in text
    )  # fmt: skip


def _units(character: str) -> Sequence[int]:
    data = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]


def disk_of(place: Place) -> str:
    """The disk of a node's slot, from the work folder in which it starts.

    The names of the folders above are the user's, and Kafka takes a comma in one for the end of a
    path. From the work folder, a path has names of slots and processes only.
    """
    return os.path.relpath(place.data_dir, place.work_dir)


def make_cache(folder: Path) -> None:
    """Makes a folder of the cache, unless it is there; raises EnvironmentFailed if it cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as refused:
        raise EnvironmentFailed(
            f"{folder} cannot be made: {refused.strerror}; name another folder in XDG_CACHE_HOME"
        ) from refused


def check_class_path(folder: Path) -> None:
    """Raises EnvironmentFailed if a JVM loads no jars from this folder: a colon separates the
    entries of a class path, and the path of an agent ends at its first equals sign."""
    for mark in (":", "="):
        if mark in str(folder):
            raise EnvironmentFailed(
                f"Java loads no jars from {folder}, since there is a {mark!r} in its name: name "
                "another folder for caches in XDG_CACHE_HOME"
            )


def resolver_files(addresses: Mapping[str, str]) -> Mapping[str, str]:
    """The files by which a JVM resolves names: `hosts` and `java.security`.

    They are among the options `NODE_OPTIONS`. A JVM reads the hosts file at each lookup. If its
    thread is interrupted meanwhile, as Kafka interrupts one that sends requests to a broker that is
    gone, the name counts as unknown. By default a JVM remembers that for ten seconds, so it must
    not.
    """
    hosts = {**addresses, "localhost": "127.0.0.1"}
    return {
        "hosts": "".join(f"{address} {name}\n" for name, address in hosts.items()),
        "java.security": "networkaddress.cache.negative.ttl=0\n",
    }


def find_java(environment: Mapping[str, str], program: str) -> tuple[str, str]:
    """The `java` of JAVA_HOME, or of the PATH, and its version.

    Raises EnvironmentFailed, which names the program, if there is none or only one older than 17.
    """
    needed = f"{program} needs Java {JAVA_LEAST} or newer"
    java = java_program(environment)
    if java is None or not os.access(java, os.X_OK):
        where = f"{java} is no program" if java else "there is no java in the PATH"
        raise EnvironmentFailed(f"{needed}, and {where}")
    now = os.stat(java)
    said = _said(java, now.st_size, now.st_mtime_ns)
    release = re.search(r'version "(\d+)[^"]*"', said)
    if release is None or int(release[1]) < JAVA_LEAST:
        first = said.partition("\n")[0] or "does not say its version"
        raise EnvironmentFailed(f"{needed}, and {java} is: {first}")
    build = re.search(r"\(build ([^,)]+)", said)
    return java, re.sub(r"[^A-Za-z0-9.+-]", "-", build[1] if build else release[1])


@cache
def _said(java: str, size: int, changed_ns: int) -> str:
    """What this Java says of its version. It is asked before each start of a node."""
    return subprocess.run(
        [java, "-version"], env=jvm_environment(os.environ), capture_output=True, text=True,
        check=False,
    ).stderr  # fmt: skip


def jvm_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a JVM that prepares what nodes use: it has their options only."""
    kept = {name: value for name, value in environment.items() if name not in _OPTIONS_OF_ALL}
    return {**kept, **NODE_ENVIRONMENT}


def class_path(folder: Path) -> str:
    """Every jar of a folder, in the order in which a shell's pattern gives them."""
    return ":".join(str(jar) for jar in sorted(folder.glob("*.jar")))


def check_jars(what: str, folder: Path, wanted: Mapping[str, str], remove: Path) -> None:
    """Raises EnvironmentFailed if one of the wanted jars is missing, or has another SHA-256 than
    the given one. `remove` is what is downloaded again once it is gone."""
    missing = [name for name in wanted if not (folder / name).exists()]
    again = f"remove {remove}, and it is downloaded"
    if missing:
        raise EnvironmentFailed(f"{what} lacks {', '.join(missing)}: {again}")
    for name, digest in wanted.items():
        if sha256(folder / name) != digest:
            raise EnvironmentFailed(f"{name} of {what} is damaged: {again} again")


def known_jars(what: str, folder: Path, remove: Path) -> Mapping[str, str]:
    """The SHA-256 that each jar of a folder had when it was first used, from `jars.sha256` there.

    A jar that is not listed yet is added, if it can be read in whole; otherwise raises
    EnvironmentFailed. In a cache that may not be written, each jar is read in whole each time.
    """
    sums = folder / _SUMS
    lines = sums.read_text().splitlines() if sums.exists() else []
    known = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    new = [jar for jar in sorted(folder.glob("*.jar")) if jar.name not in known]
    if not new:
        return known
    for jar in new:
        if not _is_whole(jar):
            raise EnvironmentFailed(
                f"{jar.name} of {what} is damaged: remove {remove}, and it is downloaded again"
            )
        known[jar.name] = sha256(jar)
    with suppress(PermissionError):
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".sums-", delete=False) as written:
            written.writelines(f"{digest}  {name}\n" for name, digest in known.items())
        Path(written.name).rename(sums)
    return known


def sha256(file: Path) -> str:
    """The digest of a file, in hexadecimal. It is computed anew only if the file has changed."""
    now = file.stat()
    return _sha256(file, now.st_size, now.st_mtime_ns)


@cache
def _sha256(file: Path, size: int, changed_ns: int) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _is_whole(jar: Path) -> bool:
    """Whether all of a jar can be read, by its checksums."""
    try:
        with zipfile.ZipFile(jar) as read:
            return read.testzip() is None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        return False


def download(
    what: str,
    artifacts: Sequence[Artifact],
    into: Path,
    cache: Path,
    environment: Mapping[str, str],
    *,
    transitive: bool = True,
) -> None:
    """Downloads these jars, and their dependencies if `transitive`, into the folder `into`.

    `cache` is the folder that lacks `what`, for the error. Raises EnvironmentFailed without Maven,
    or if it fails.
    """
    maven = _maven(what, cache, environment)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".pom-") as made:
        description = Path(made) / "pom.xml"
        description.write_text(pom(artifacts))
        run(
            [maven, *_QUIETLY, "-f", str(description), f"{_COPY}-dependencies",
             "-DincludeScope=runtime", f"-DexcludeTransitive={str(not transitive).lower()}",
             f"-DoutputDirectory={into}"],
            Path(made),
            _MAVEN_LIMIT_S,
            f"Maven could not download {what}",
        )  # fmt: skip


def download_one(artifact: Artifact, jar: Path, environment: Mapping[str, str]) -> None:
    """Downloads one jar into a folder beside `jar`, and renames it once it is complete.

    Raises EnvironmentFailed as `download` does.
    """
    maven = _maven(jar.name, jar.parent, environment)
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix=".jar-") as made:
        run(
            [maven, *_QUIETLY, _COPY, f"-DoutputDirectory={made}",
             f"-Dartifact={artifact.group}:{artifact.name}:{artifact.version}"],
            Path(made),
            _MAVEN_LIMIT_S,
            f"Maven could not download {jar.name}",
        )  # fmt: skip
        brought = Path(made) / artifact.jar
        if not brought.exists():
            raise EnvironmentFailed(f"Maven downloaded no {artifact.jar}")
        brought.rename(jar)


def pom(artifacts: Sequence[Artifact]) -> str:
    """A project that depends on these artifacts."""
    dependencies = "".join(
        f"<dependency><groupId>{one.group}</groupId><artifactId>{one.name}</artifactId>"
        f"<version>{escape(one.version)}</version></dependency>"
        for one in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>fencepost</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def run(
    argv: Sequence[str],
    folder: Path,
    limit_s: int,
    failure: str,
    *,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Runs a program in a folder to its end; raises EnvironmentFailed with its last lines if it
    fails.

    Maven makes its repository in the folder if the user has no home, and would read the `.mvn` of
    the user's own project.
    """
    try:
        ran = subprocess.run(
            argv, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=limit_s, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise EnvironmentFailed(f"{failure}: it was not done after {limit_s} s") from None
    if ran.returncode:
        raise _failed(failure, ran.stdout.splitlines())


def run_until(
    argv: Sequence[str], folder: Path, started: re.Pattern[str], limit_s: int, failure: str
) -> Sequence[str]:
    """Runs a JVM in a folder until it prints a line with this pattern, and stops it in order.

    Returns what it printed. Raises EnvironmentFailed with its last lines if it ends before, or
    prints no such line in time.
    """
    said: list[str] = []
    with subprocess.Popen(
        argv, cwd=folder, env=jvm_environment(os.environ), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        watchdog = Timer(limit_s, server.kill)
        watchdog.start()
        try:
            for line in server.stdout:
                said.append(line.rstrip())
                if started.search(line):
                    server.terminate()
        finally:
            watchdog.cancel()
            server.kill()
    if not any(map(started.search, said)):
        raise _failed(failure, said)
    return said


def no_archive(java: str, what: str, said: Sequence[str]) -> EnvironmentFailed:
    """The error of a JVM that printed this and archived no classes, as one may that came without an
    archive of its own: with the JVM's own last words, not those of its program."""
    own = [line for line in said if _OF_THE_JVM.search(line)]
    words = last_words("\n".join(own or said))
    return EnvironmentFailed(f"{java} made no class data archive of {what}: {words}")


def _failed(failure: str, said: Sequence[str]) -> EnvironmentFailed:
    """The error of a program that has printed this: one sentence if a line says why, or else its
    last lines."""
    for line in said:
        if newer := _NEWER_JAVA.search(line):
            least = int(newer[1]) - _JAVA_OF_CLASS_FILES
            return EnvironmentFailed(f"{failure}: it needs Java {least} or newer")
        if absent := _NO_ARTIFACT.search(line):
            return EnvironmentFailed(f"{failure}: there is no {absent[1] or absent[2]}")
    last = last_lines(said)
    return EnvironmentFailed(f"{failure}: {last_words(last)}", last)


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Waits until no other process holds this lock file."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def last_lines(lines: Sequence[str]) -> str:
    """The end of a log, as an error's detail."""
    return "\n".join(lines[-_LAST_LINES:])


def _maven(what: str, cache: Path, environment: Mapping[str, str]) -> str:
    maven = shutil.which("mvn", path=environment.get("PATH"))
    if maven is None:
        raise EnvironmentFailed(
            f"{what} is not in {cache}, and Maven (mvn), which would download it from Maven "
            "Central, is not in the PATH"
        )
    return maven
