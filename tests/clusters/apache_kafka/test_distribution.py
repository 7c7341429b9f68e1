"""Installing Kafka: one sentence names what is missing, before anything is started."""

from __future__ import annotations

import importlib
import os
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from fencepost import EnvironmentFailed, UsageError
from fencepost_clusters.apache_kafka import distribution
from fencepost_clusters.apache_kafka.builds import Build, released
from fencepost_clusters.apache_kafka.cluster import NEWEST, KRaft, UntriedRelease, resource
from fencepost_clusters.apache_kafka.distribution import cache, installed
from fencepost_clusters.zookeeper import distribution as zookeeper

pytestmark = pytest.mark.tool

ROOT = Path(__file__).parents[3]


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


def put_jar(jar: Path) -> None:
    with zipfile.ZipFile(jar, "w") as written:
        written.writestr("Main.class", "code")


@pytest.mark.parametrize("version", ["2.1.1", "3.9.2"])
def test_a_damaged_jar_in_the_cache_is_named(version: str, tools: Path, tmp_path: Path) -> None:
    environment = {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = cache(environment) / version
    (home / "lib").mkdir(parents=True)
    (home / "classes-17.0.15+6-Test.jsa").touch()
    put_jar(home / "lib" / "kafka.jar")
    agent = home.parent / f"jmx_prometheus_javaagent-{distribution.AGENT}.jar"
    put_jar(agent)
    assert installed(released(version), environment, "").home == home
    for jar, what, remove in (
        (home / "lib" / "kafka.jar", f"Kafka {version}", home),
        (agent, "Kafka's agent for metrics", agent),
    ):
        whole = jar.read_bytes()
        jar.write_bytes(whole[:-1])
        with pytest.raises(EnvironmentFailed) as failed:
            installed(released(version), environment, "")
        again = f"remove {remove}, and it is downloaded again"
        assert str(failed.value) == f"{jar.name} of {what} is damaged: {again}"
        jar.write_bytes(whole)


def test_without_maven_and_without_a_cached_class_path_both_are_named(
    tools: Path, tmp_path: Path
) -> None:
    environment = {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with pytest.raises(EnvironmentFailed, match=r"Kafka 4\.3\.1 is not in .*kafka, and Maven") as e:
        installed(released("4.3.1"), environment, "")
    assert e.value.exit_code == 4


@pytest.mark.parametrize("folder", ["label=linux", "co:lon"])
def test_a_cache_whose_jars_java_cannot_load_is_refused_before_anything_is_made(
    folder: str, tools: Path, tmp_path: Path
) -> None:
    environment = {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / folder)}
    for install in (
        lambda: installed(released("4.3.1"), environment, ""),
        lambda: zookeeper.installed(environment),
    ):
        with pytest.raises(EnvironmentFailed, match=f"Java loads no jars from .*{folder}"):
            install()
    assert not (tmp_path / folder).exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "[ERROR] Could not find artifact org.apache.kafka:kafka_2.13:jar:9.9.9 in central (..)",
            "Maven could not download Kafka 9.9.9: "
            "there is no org.apache.kafka:kafka_2.13:jar:9.9.9",
        ),
        (
            "[ERROR] org.apache.kafka:kafka_2.13:jar:9.9.9 was not found in https://... before",
            "Maven could not download Kafka 9.9.9: "
            "there is no org.apache.kafka:kafka_2.13:jar:9.9.9",
        ),
        (
            "[ERROR] Connection refused",
            "Maven could not download Kafka 9.9.9: [ERROR] Connection refused",
        ),
    ],
    ids=["no such version", "nor before", "no network"],
)
def test_a_version_that_maven_cannot_download_is_named(
    line: str, says: str, tools: Path, tmp_path: Path
) -> None:
    maven = tools / "mvn"
    maven.write_text(f"#!/bin/sh\necho 'Scanning'\necho '{line}'\nexit 1\n")
    maven.chmod(0o755)
    environment = {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with pytest.raises(EnvironmentFailed) as failed:
        installed(released("9.9.9"), environment, "")
    assert str(failed.value) == says
    assert failed.value.detail in ("", f"Scanning\n{line}")
    assert failed.value.exit_code == 4
    assert not (cache(environment) / "9.9.9").exists()


@pytest.mark.parametrize("version", ["3.9.2", "9.9.9"])
def test_a_version_that_does_not_start_on_this_java_says_which_one_it_needs(
    version: str, tools: Path, tmp_path: Path
) -> None:
    java = tools / "java"
    words = java.read_text()
    refused = (
        "java.lang.UnsupportedClassVersionError: kafka/tools/StorageTool has been compiled by a "
        "more recent version of the Java Runtime (class file version 65.0), this version of the "
        "Java Runtime only recognizes class file versions up to 61.0"
    )
    starts = f"[ \"$1\" = -version ] || {{ echo '{refused}' >&2; exit 1; }}\n"
    java.write_text(words.replace("#!/bin/sh\n", f"#!/bin/sh\n{starts}"))
    environment = {"PATH": f"{tools}:/bin:/usr/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = cache(environment) / version
    (home / "lib").mkdir(parents=True)
    put_jar(home / "lib" / "kafka.jar")
    with pytest.raises(EnvironmentFailed) as failed:
        installed(released(version), environment, "")
    assert str(failed.value) == (
        f"StorageTool of Kafka {version} failed: it needs Java 21 or newer"
    )
    assert sorted(one.name for one in home.iterdir()) == ["lib"]


@pytest.mark.parametrize(
    ("writes", "said", "kept"),
    [
        (
            "",
            "StorageTool of Kafka 9.9.9 wrote neither bootstrap.checkpoint nor "
            "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
            [],
        ),
        ("bootstrap.checkpoint", "a node of Kafka 9.9.9 did not start", ["bootstrap.checkpoint"]),
        (
            "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
            "a node of Kafka 9.9.9 did not start",
            ["00000000000000000000-0000000000.checkpoint"],
        ),
    ],
    ids=["nothing", "as 4.3", "as 4.4"],
)
def test_the_metadata_of_a_formatted_disk_is_kept_wherever_the_storage_tool_writes_it(
    writes: str, said: str, kept: list[str], tools: Path, tmp_path: Path
) -> None:
    java = tools / "java"
    words = java.read_text()
    formats = (
        'for settings; do :; done\ncase "$*" in *StorageTool*) '
        'disk=$(sed -n s/^log.dirs=//p "$settings"); mkdir -p "$disk/__cluster_metadata-0"; '
        f'[ -z "{writes}" ] || echo made >"$disk/{writes}"; exit 0;; esac\n'
        '[ "$1" = -version ] || exit 1\n'
    )
    java.write_text(words.replace("#!/bin/sh\n", f"#!/bin/sh\n{formats}"))
    environment = {"PATH": f"{tools}:/bin:/usr/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = cache(environment) / "9.9.9"
    (home / "lib").mkdir(parents=True)
    put_jar(home / "lib" / "kafka.jar")
    with pytest.raises(EnvironmentFailed) as failed:
        installed(released("9.9.9"), environment, "")
    assert str(failed.value).startswith(said)
    assert sorted(one.name for one in home.iterdir()) == [*kept, "lib"]


def test_a_version_whose_first_metadata_is_not_here_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed) as failed:
        distribution.first_metadata(
            released("4.4.0"), {"XDG_CACHE_HOME": str(tmp_path)}, "apache/kraft@4.4.0"
        )
    assert str(failed.value) == (
        f"Kafka 4.4.0, whose first metadata a new disk needs, is not in "
        f"{tmp_path}/fencepost/kafka: fencepost setup --system apache/kraft@4.4.0 installs it"
    )


def test_jars_in_the_cache_need_neither_network_nor_maven(tools: Path, tmp_path: Path) -> None:
    environment = {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = cache(environment) / "4.3.1"
    home.mkdir(parents=True)
    (home / "classes-17.0.15+6-Test.jsa").touch()
    agent = home.parent / f"jmx_prometheus_javaagent-{distribution.AGENT}.jar"
    put_jar(agent)
    found = installed(released("4.3.1"), environment, "")
    assert (found.home, found.archive.parent, found.agent) == (home, home, agent)


def test_the_agent_is_downloaded_once_for_all_versions(tools: Path, tmp_path: Path) -> None:
    """A cache from before the agent lacks only the agent."""
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for version in ("4.3.1", "4.1.0"):
        home = cache(environment) / version
        home.mkdir(parents=True)
        (home / "classes-17.0.15+6-Test.jsa").touch()
    put_jar(tmp_path / "agent.jar")
    maven, asked = tools / "mvn", tmp_path / "asked"
    jar = f"jmx_prometheus_javaagent-{distribution.AGENT}.jar"
    maven.write_text(
        f'#!/bin/sh\necho "$*" >>{asked}\n'
        "for word; do case $word in -DoutputDirectory=*) folder=${word#*=}; esac; done\n"
        f'cp {tmp_path}/agent.jar "$folder/{jar}"\n'
    )
    maven.chmod(0o755)
    found = [installed(released(version), environment, "").agent for version in ("4.3.1", "4.1.0")]
    assert found == [cache(environment) / jar] * 2
    assert found[0].exists()
    (line,) = asked.read_text().splitlines()
    assert f"io.prometheus.jmx:jmx_prometheus_javaagent:{distribution.AGENT}" in line


def test_an_agent_that_cannot_be_downloaded_is_named(tools: Path, tmp_path: Path) -> None:
    environment = {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = cache(environment) / "4.3.1"
    home.mkdir(parents=True)
    (home / "classes-17.0.15+6-Test.jsa").touch()
    with pytest.raises(EnvironmentFailed, match=r"jmx_prometheus_javaagent.* is not in .* Maven"):
        installed(released("4.3.1"), environment, "")
    maven = tools / "mvn"
    maven.write_text("#!/bin/sh\nexit 0\n")
    maven.chmod(0o755)
    with pytest.raises(EnvironmentFailed, match="Maven downloaded no jmx_prometheus_javaagent"):
        installed(released("4.3.1"), environment, "")


def test_an_image_has_every_file_where_the_image_puts_it() -> None:
    found = distribution.in_image(released("4.3.1"))
    assert {str(found.home), str(found.archive.parent), str(found.agent.parent)} == {"/opt/kafka"}


def test_kafka_is_installed_here_even_if_its_image_has_not_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The observer of a run in containers reads the schemas from the cache."""
    monkeypatch.syspath_prepend(ROOT)
    images = importlib.import_module("images.build")
    brought: list[Build] = []
    monkeypatch.setattr(images, "installed", lambda build, *_: brought.append(build))
    software = images.kafka_of("4.1.0")
    recipe = images.Recipe("fencepost/kafka:4.1.0", "kafka", "a base", software=software)
    labels = {images.INPUTS_LABEL: images.inputs(recipe, "id")}
    engine = SimpleNamespace(inspect_image=lambda _: {"Id": "id", "Config": {"Labels": labels}})
    brought.clear()
    assert not images.build(engine, recipe, "x86_64")
    assert brought == [released("4.1.0")]


@pytest.mark.tool
def test_no_other_library_of_a_build_logs_beside_log4j_2(tools: Path, tmp_path: Path) -> None:
    environment = {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    kept = ["kafka_2.13-4.4.0", "log4j-core-2.24.3", "log4j-slf4j-impl-2.24.3"]
    jars = [
        tmp_path / f"{name}.jar"
        for name in (*kept, "reload4j-1.2.25", "slf4j-reload4j-1.7.36", "logback-classic-1.5.0")
    ]
    for jar in jars:
        put_jar(jar)
    build = Build("4.4.0", "builds/mine", tuple(jars))
    with pytest.raises(EnvironmentFailed, match="StorageTool of Kafka"):
        installed(build, environment, "")
    library = distribution.home_of(build, environment) / "lib"
    assert sorted(jar.stem for jar in library.glob("*.jar")) == kept


def test_the_cache_is_the_users() -> None:
    assert cache({"XDG_CACHE_HOME": "/c"}) == Path("/c/fencepost/kafka")
    assert cache({"HOME": "/h"}) == Path("/h/.cache/fencepost/kafka")


def test_kafka_3_gets_a_bridge_from_log4j_1() -> None:
    wanted = {
        version: [artifact.jar for artifact in distribution.artifacts(released(version))]
        for version in ("3.9.2", "4.3.1")
    }
    bridge = f"log4j-1.2-api-{distribution.LOG4J}.jar"
    assert bridge in wanted["3.9.2"]
    assert bridge not in wanted["4.3.1"]
    assert "kafka_2.13-4.3.1.jar" in wanted["4.3.1"]


def test_a_version_is_named_after_the_system() -> None:
    assert KRaft().at("3.9.2").name == "apache/kraft@3.9.2"
    assert KRaft().at("3.9.2").version == "3.9.2"
    assert KRaft().at("3.3.2").version == "3.3.2"
    for version, why in (
        ("3.2.3", "3.3 and newer"),
        ("4", "not a version"),
        ("4.x.1", "not a version"),
    ):
        with pytest.raises(UsageError, match=why):
            KRaft().at(version)


def test_a_release_that_was_not_tried_runs_and_says_so(
    recwarn: pytest.WarningsRecorder,
) -> None:
    major, minor = NEWEST
    KRaft().at(f"{major}.{minor}.9")
    assert not recwarn.list
    with pytest.warns(UntriedRelease, match=rf"{major}\.{minor + 1}\.0 is newer than {major}"):
        assert KRaft().at(f"{major}.{minor + 1}.0").version == f"{major}.{minor + 1}.0"


def test_nodes_log_one_unbuffered_line_per_event_on_the_runs_clock() -> None:
    lines = resource("log4j2.properties").splitlines()
    assert "appender.out.direct = true" in lines
    assert "shutdownHook = disable" in lines
    assert any("@%nano %p %c %enc{%m}{CRLF}" in line for line in lines)
    assert os.linesep == "\n"
