"""The ZooKeeper server from Maven Central, in the user's cache folder.

`<cache>/zookeeper/<version>/lib` holds seven jars, each with the SHA-256 below. The last two are
not among the dependencies that Maven finds: without metrics-core the server does not start, without
snappy-java it starts but accepts no session. Beside `lib` are class data archives, one per Java,
which save two fifths of the cost of a start.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from fencepost import EnvironmentFailed, cache_folder
from fencepost_clusters.java import (
    Artifact,
    alone,
    check_class_path,
    check_jars,
    class_path,
    download,
    find_java,
    make_cache,
    no_archive,
    run_until,
    sha256,
)

VERSION = "3.9.5"
JARS: Mapping[Artifact, str] = {
    Artifact("org.apache.zookeeper", "zookeeper", VERSION): (
        "936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0"
    ),
    Artifact("org.apache.zookeeper", "zookeeper-jute", VERSION): (
        "abcbc7f9d6c493daa118da6fa3061a201e2c521217526e8535adfb56b629e52a"
    ),
    Artifact("org.slf4j", "slf4j-api", "2.0.13"): (
        "e7c2a48e8515ba1f49fa637d57b4e2f590b3f5bd97407ac699c3aa5efb1204a9"
    ),
    Artifact("ch.qos.logback", "logback-classic", "1.3.15"): (
        "06c68fb7468143c3c6512d13bb8eb6676724b019330de3a5ab493e267dde2084"
    ),
    Artifact("ch.qos.logback", "logback-core", "1.3.15"): (
        "90b72ec457f30f8f42a280a409ab2bc4499fec16983005d1d91015199be7047b"
    ),
    Artifact("io.dropwizard.metrics", "metrics-core", "4.1.12.1"): (
        "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9"
    ),
    Artifact("org.xerial.snappy", "snappy-java", "1.1.10.5"): (
        "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b"
    ),
}
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_STARTED = re.compile("ZooKeeper audit is ")
"""What a server alone logs last when it starts."""
_JVM_LIMIT_S = 90


@dataclass(frozen=True, slots=True)
class Distribution:
    """ZooKeeper, ready to start: `home/lib` is its class path, and `archive` the class data archive
    for `java`. A server starts without the archive, too."""

    home: Path
    java: str
    archive: Path


def installed(environment: Mapping[str, str]) -> Distribution:
    """ZooKeeper, downloaded and prepared if necessary, which takes some seconds.

    Raises EnvironmentFailed without a Java of 17 or newer; without Maven if ZooKeeper is not in the
    cache; if a jar is missing there, or has another checksum; or if a server does not start.
    """
    java, java_version = find_java(environment, "ZooKeeper")
    home = cache(environment) / VERSION
    check_class_path(home)
    if not home.exists():
        make_cache(home.parent)
        with alone(home.parent / f"{VERSION}.lock"):
            if not home.exists():
                _bring(home, environment)
    wanted = {one.jar: digest for one, digest in JARS.items()}
    check_jars(f"ZooKeeper {VERSION}", home / "lib", wanted, home)
    found = Distribution(home, java, home / f"classes-{java_version}.jsa")
    writable = all(os.access(one, os.W_OK) for one in (home.parent, home))
    if writable and not found.archive.exists():
        with alone(home.parent / f"{VERSION}.lock"):
            if not found.archive.exists():
                _archive_classes(found)
    return found


def in_image() -> Distribution:
    """ZooKeeper where `images/zookeeper/Dockerfile` puts it."""
    home = Path("/opt/zookeeper")
    return Distribution(home, "java", home / "classes.jsa")


def resource(name: str) -> str:
    """A file beside this one."""
    return files("fencepost_clusters.zookeeper").joinpath(name).read_text(encoding="utf-8")


def cache(environment: Mapping[str, str]) -> Path:
    """The folder that has one folder per version."""
    return cache_folder(environment) / "zookeeper"


def _bring(home: Path, environment: Mapping[str, str]) -> None:
    """Downloads the jars into a folder beside `home`, and renames it once they are checked."""
    what = f"ZooKeeper {VERSION}"
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{VERSION}-") as made:
        whole = Path(made) / "whole"
        download(what, [*JARS], whole / "lib", home.parent, environment, transitive=False)
        for artifact, digest in JARS.items():
            jar = whole / "lib" / artifact.jar
            if not jar.exists():
                raise EnvironmentFailed(f"Maven downloaded no {artifact.jar} for {what}")
            if sha256(jar) != digest:
                raise EnvironmentFailed(f"{artifact.jar}, as Maven downloaded it, is another file")
        whole.rename(home)


def _archive_classes(zookeeper: Distribution) -> None:
    """Runs one server until it has started, to archive the classes that it loads."""
    with tempfile.TemporaryDirectory(dir=zookeeper.home, prefix=".server-") as made:
        folder, partial = Path(made), Path(made) / "classes.jsa"
        (folder / "zoo.cfg").write_text(
            "dataDir=./data\nclientPort=0\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\n4lw.commands.whitelist=srvr\n"
        )
        (folder / "logback.xml").write_text(resource("logback.xml"))
        said = run_until(
            [zookeeper.java, "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
             f"-XX:ArchiveClassesAtExit={partial}", "-Dlogback.configurationFile=logback.xml",
             "-cp", class_path(zookeeper.home / "lib"), MAIN, "zoo.cfg"],
            folder,
            _STARTED,
            _JVM_LIMIT_S,
            f"a server of ZooKeeper {VERSION} did not start",
        )  # fmt: skip
        if not partial.exists():
            raise no_archive(zookeeper.java, "ZooKeeper", said)
        partial.rename(zookeeper.archive)
