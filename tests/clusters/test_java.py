"""Java and Maven: how they are found and called, and the one sentence about a missing one."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed
from fencepost_clusters.java import (
    NODE_OPTIONS,
    Artifact,
    check_class_path,
    check_jars,
    class_path,
    find_java,
    known_jars,
    make_cache,
    no_archive,
    pom,
    properties,
    resolver_files,
    sha256,
)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """The only folder of the PATH; it contains a `java` of version 17."""
    folder = tmp_path / "bin"
    folder.mkdir()
    write_java(folder, "17.0.15")
    return folder


def write_java(folder: Path, version: str) -> None:
    program = folder / "java"
    said = f'openjdk version "{version}"\nOpenJDK Runtime Environment (build {version}+6-Test)'
    program.write_text(f"#!/bin/sh\ncat >&2 <<'TEXT'\n{said}\nTEXT\n")
    program.chmod(0o755)


@pytest.mark.tool
def test_java_is_found_by_its_home_or_the_path(tools: Path, tmp_path: Path) -> None:
    assert find_java({"PATH": str(tools)}, "Kafka") == (f"{tools}/java", "17.0.15+6-Test")
    (tmp_path / "home" / "bin").mkdir(parents=True)
    write_java(tmp_path / "home" / "bin", "21.0.1")
    home = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tools)}
    assert find_java(home, "Kafka") == (f"{tmp_path}/home/bin/java", "21.0.1+6-Test")


@pytest.mark.tool
def test_an_old_java_and_a_missing_one_are_named(tools: Path, tmp_path: Path) -> None:
    write_java(tools, "11.0.2")
    with pytest.raises(
        EnvironmentFailed, match=r'Kafka needs Java 17 or newer.* is: openjdk version "11.0.2"'
    ):
        find_java({"PATH": str(tools)}, "Kafka")
    with pytest.raises(EnvironmentFailed, match="there is no java in the PATH"):
        find_java({"PATH": str(tmp_path)}, "Kafka")
    with pytest.raises(EnvironmentFailed, match="is no program"):
        find_java({"JAVA_HOME": "/nowhere"}, "Kafka")


def test_a_project_names_group_name_and_version() -> None:
    written = pom([Artifact("org.apache.zookeeper", "zookeeper", "3.9.5")])
    assert "<groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId>" in written
    assert "<version>3.9.5</version>" in written


def test_a_class_path_has_the_jars_of_a_folder_in_order(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / name).touch()
    assert class_path(tmp_path) == f"{tmp_path}/a.jar:{tmp_path}/b.jar"


def put_jar(jar: Path, text: str) -> None:
    with zipfile.ZipFile(jar, "w") as written:
        written.writestr("Main.class", text)


def test_jars_are_known_from_their_first_use_on(tmp_path: Path) -> None:
    for name in ("a.jar", "b.jar"):
        put_jar(tmp_path / name, name)
    known = known_jars("Kafka", tmp_path, tmp_path)
    assert known == {name: sha256(tmp_path / name) for name in ("a.jar", "b.jar")}
    assert (tmp_path / "jars.sha256").read_text().startswith(f"{known['a.jar']}  a.jar\n")
    put_jar(tmp_path / "a.jar", "something else")
    put_jar(tmp_path / "c.jar", "new")
    later = known_jars("Kafka", tmp_path, tmp_path)
    assert later == {**known, "c.jar": sha256(tmp_path / "c.jar")}
    with pytest.raises(EnvironmentFailed) as failed:
        check_jars("Kafka", tmp_path, later, tmp_path)
    again = f"remove {tmp_path}, and it is downloaded again"
    assert str(failed.value) == f"a.jar of Kafka is damaged: {again}"


@pytest.mark.parametrize("damage", ["cut", "overwritten", "empty"])
def test_a_jar_that_is_damaged_before_its_first_use_is_named(damage: str, tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    put_jar(jar, "a" * 1000)
    whole = jar.read_bytes()
    middle = len(whole) // 2
    damaged = {"cut": whole[:-30], "empty": b""}
    jar.write_bytes(damaged.get(damage, whole[:middle] + b"b" + whole[middle + 1 :]))
    with pytest.raises(EnvironmentFailed, match=r"^a\.jar of Kafka is damaged: remove ") as failed:
        known_jars("Kafka", tmp_path, tmp_path)
    assert failed.value.exit_code == 4
    assert not (tmp_path / "jars.sha256").exists()


def test_a_digest_follows_a_file_that_changes(tmp_path: Path) -> None:
    file = tmp_path / "a.jar"
    for text in (b"one", b"three"):
        file.write_bytes(text)
        assert sha256(file) == hashlib.sha256(text).hexdigest()


def test_missing_jars_are_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"^Kafka lacks a\.jar, b\.jar: remove /there"):
        check_jars("Kafka", tmp_path, {"a.jar": "", "b.jar": ""}, Path("/there"))


LOOKUP = """
import java.net.InetAddress;
import java.net.UnknownHostException;

class Lookup {
    public static void main(String[] names) throws Exception {
        Thread.currentThread().interrupt();
        try {
            InetAddress.getByName(names[0]);
        } catch (UnknownHostException unknown) {
            System.out.print("unknown ");
        }
        Thread.interrupted();
        System.out.print(InetAddress.getByName(names[0]).getHostAddress());
    }
}
"""


@pytest.mark.tool
def test_a_lookup_that_was_interrupted_is_forgotten_at_once(tmp_path: Path) -> None:
    java, _ = find_java(os.environ, "a test")
    (tmp_path / "Lookup.java").write_text(LOOKUP)
    for name, text in resolver_files({"broker-3": "127.0.9.3"}).items():
        (tmp_path / name).write_text(text)
    found = subprocess.run(
        [java, *NODE_OPTIONS, "Lookup.java", "broker-3"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout == "unknown 127.0.9.3"


READER = """
import java.nio.file.*;
import java.util.*;

class Reader {
    static String units(String text) {
        StringJoiner joined = new StringJoiner(" ");
        text.chars().forEach(unit -> joined.add(Integer.toString(unit)));
        return joined.toString();
    }

    public static void main(String[] names) throws Exception {
        Properties read = new Properties();
        try (var file = Files.newInputStream(Path.of(names[0]))) {
            read.load(file);
        }
        for (String name : new TreeSet<>(read.stringPropertyNames())) {
            System.out.println(units(name) + "=" + units(read.getProperty(name)));
        }
    }
}
"""
ODD = {
    "a": "back\\slash",
    "b": "  led by blanks, and followed ",
    "c": "j\u00f6rg \u20ac \U0001f600",
    "d": "tab\tline\nfeed\rform\f",
    "e": "=:#!",
    "f": "",
    "g h=i:j#!": "a name to escape",
    "h": "C:\\u0041",
    "i": "\udcff of a folder that is not UTF-8",
}


def units(text: str) -> str:
    data = text.encode("utf-16-be", "surrogatepass")
    return " ".join(str(int.from_bytes(data[at : at + 2])) for at in range(0, len(data), 2))


@pytest.mark.tool
def test_properties_come_back_as_they_were(tmp_path: Path) -> None:
    java, _ = find_java(os.environ, "a test")
    (tmp_path / "Reader.java").write_text(READER)
    (tmp_path / "odd.properties").write_text(properties(ODD), encoding="ascii")
    read = subprocess.run(
        [java, "Reader.java", "odd.properties"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert read.splitlines() == [f"{units(name)}={units(ODD[name])}" for name in sorted(ODD)]


def test_ordinary_properties_stay_readable() -> None:
    listens = {"listeners": "CLIENT://127.9.5.5:9092", "log.dirs": "../../data/broker-1"}
    assert properties(listens) == (
        "listeners=CLIENT://127.9.5.5:9092\nlog.dirs=../../data/broker-1\n"
    )


def test_a_jvm_that_archives_no_classes_is_quoted_and_not_its_program() -> None:
    said = [
        "OpenJDK 64-Bit Server VM warning: Sharing is only supported for boot loader classes",
        "[0.005s][warning][cds] -XX:ArchiveClassesAtExit is unsupported without a base archive",
        "@12 ERROR kafka.Kafka$ a line of the program",
    ]
    assert str(no_archive("/j/bin/java", "Kafka", said)) == (
        "/j/bin/java made no class data archive of Kafka: "
        "[0.005s][warning][cds] -XX:ArchiveClassesAtExit is unsupported without a base archive"
    )


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFailed, match=r"file/kafka cannot be made: .*XDG_CACHE_HOME"):
        make_cache(tmp_path / "file" / "kafka")


@pytest.mark.parametrize("name", ["label=linux", "co:lon"])
def test_a_folder_whose_jars_java_cannot_load_is_refused(name: str) -> None:
    with pytest.raises(EnvironmentFailed, match=f"loads no jars from /c/{name}.*XDG_CACHE_HOME"):
        check_class_path(Path("/c", name))
    check_class_path(Path("/c/a,b j\u00f6rg back\\slash with blank"))
