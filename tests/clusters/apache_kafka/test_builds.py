"""Which Kafka is meant by a version, and by a folder."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from fencepost import UsageError
from fencepost_clusters.apache_kafka.builds import Build, named
from fencepost_clusters.apache_kafka.cluster import KRaft

VERSION = "4.4.0"


def put(jar: Path, version: str = "") -> None:
    jar.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(jar, "w") as written:
        written.writestr("Some.class", "code")
        if version:
            said = f"#Kafka\ncommitId=0123456789abcdef\nversion={version}\n"
            written.writestr("kafka/kafka-version.properties", said)


def put_kafka(folder: Path, version: str = VERSION) -> None:
    put(folder / f"kafka_2.13-{version}.jar")
    put(folder / f"kafka-clients-{version}.jar", version)
    put(folder / f"kafka-metadata-{version}.jar")


def found(folder: Path) -> Build:
    return named(str(folder), {})


def test_a_release_comes_from_maven_under_its_own_name() -> None:
    assert named("4.3.1", {}) == Build("4.3.1", "4.3.1")
    assert named("4.3.1", {}).release == (4, 3)


@pytest.mark.parametrize("below", ["", "libs"])
def test_a_folder_of_jars_or_a_release_that_was_unpacked_says_its_version(
    below: str, tmp_path: Path
) -> None:
    put_kafka(tmp_path / below)
    put(tmp_path / below / "kafka_2.13-4.4.0-test.jar")
    build = found(tmp_path)
    assert build.version == VERSION
    assert [jar.name for jar in build.jars] == [
        "kafka-clients-4.4.0.jar", "kafka-metadata-4.4.0.jar", "kafka_2.13-4.4.0.jar",
    ]  # fmt: skip


def test_a_checkout_runs_what_gradle_has_made(tmp_path: Path) -> None:
    (tmp_path / "gradlew").touch()
    made = "4.5.0-SNAPSHOT"
    put(tmp_path / "core" / "build" / "libs" / f"kafka_2.13-{made}.jar")
    put(tmp_path / "core" / "build" / "libs" / f"kafka_2.13-{made}-test.jar")
    put(tmp_path / "core" / "build" / "dependant-libs-2.13.16" / f"kafka-raft-{made}.jar")
    put(tmp_path / "core" / "build" / "dependant-libs-2.13.16" / "slf4j-api-1.7.36.jar")
    put(tmp_path / "clients" / "build" / "libs" / f"kafka-clients-{made}.jar", made)
    build = found(tmp_path)
    assert (build.version, build.release) == (made, (4, 5))
    assert len(build.jars) == 4


def test_a_build_that_is_made_anew_is_another_one(tmp_path: Path) -> None:
    put_kafka(tmp_path)
    before = found(tmp_path)
    assert found(tmp_path) == before
    jar = tmp_path / f"kafka_2.13-{VERSION}.jar"
    os.utime(jar, ns=(0, jar.stat().st_mtime_ns + 1))
    assert found(tmp_path).key != before.key


def environment_with(home: Path) -> Mapping[str, str]:
    return {"HOME": str(home)}


def test_a_version_of_ones_own_is_known_by_what_was_published_last(tmp_path: Path) -> None:
    made, environment = "4.5.0-SNAPSHOT", environment_with(tmp_path)
    assert named(made, environment) == Build(made, made)
    published = tmp_path / ".m2" / "repository" / "org" / "apache" / "kafka"
    put(published / "kafka_2.13" / made / f"kafka_2.13-{made}.jar")
    first = named(made, environment)
    put(published / "kafka-raft" / made / f"kafka-raft-{made}.jar")
    second = named(made, environment)
    assert first.version == second.version == made
    assert len({made, first.key, second.key}) == 3
    assert first.jars == ()


@pytest.mark.parametrize("name", ["", "4", "latest", "4.4", "4.4.0/..nowhere", "v4.4.0"])
def test_what_is_neither_a_version_nor_a_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"is not a version of Kafka|is no folder"):
        named(name, {})


def test_a_folder_without_kafka_is_refused_by_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no Kafka in .*, no kafka_2\.\*-\*\.jar, nor in libs/"):
        found(tmp_path)
    put(tmp_path / "kafka_2.13-4.4.0.jar")
    with pytest.raises(UsageError, match=r"no kafka-clients-\*\.jar"):
        found(tmp_path)
    (tmp_path / "gradlew").touch()
    with pytest.raises(UsageError, match=r"run \./gradlew jar there first"):
        found(tmp_path)


def test_a_folder_with_several_kafkas_is_refused(tmp_path: Path) -> None:
    put_kafka(tmp_path)
    put_kafka(tmp_path, "4.3.1")
    with pytest.raises(UsageError, match=r"several Kafkas .*4\.3\.1\.jar, .*-4\.4\.0\.jar"):
        found(tmp_path)


@pytest.mark.parametrize("broken", [b"no zip", b""])
def test_clients_that_say_no_version_are_named(broken: bytes, tmp_path: Path) -> None:
    put_kafka(tmp_path)
    clients = tmp_path / f"kafka-clients-{VERSION}.jar"
    clients.write_bytes(broken)
    with pytest.raises(UsageError, match=f"{clients.name} does not say of which version it is"):
        found(tmp_path)
    put(clients)
    with pytest.raises(UsageError, match=f"{clients.name} does not say of which version it is"):
        found(tmp_path)


def test_a_system_of_a_folder_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay may be asked for elsewhere."""
    put_kafka(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    system = KRaft().at("./mine")
    assert system.name == f"apache/kraft@{tmp_path / 'mine'}"
    assert system.version == VERSION


def test_a_folder_of_an_old_release_is_refused(tmp_path: Path) -> None:
    put_kafka(tmp_path, "3.2.3")
    with pytest.raises(UsageError, match=r"knows Kafka 3\.3 and newer, not 3\.2\.3"):
        KRaft().at(str(tmp_path))
