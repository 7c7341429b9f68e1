"""Installing ZooKeeper: one sentence names what is missing, before anything is started."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed
from fencepost_clusters.zookeeper import distribution
from fencepost_clusters.zookeeper.distribution import JARS, VERSION, cache, installed

pytestmark = pytest.mark.tool

JAVA = "#!/bin/sh\necho 'openjdk version \"17.0.15\"' >&2\n"
EMPTY_JARS = """#!/bin/sh
for word; do case $word in -DoutputDirectory=*) folder=${word#*=}; esac; done
mkdir -p "$folder"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A PATH with a Java and no Maven, and an empty cache."""
    (tmp_path / "bin").mkdir()
    put(tmp_path / "bin" / "java", JAVA)
    return {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def put(program: Path, text: str) -> None:
    program.write_text(text)
    program.chmod(0o755)


def put_maven(tmp_path: Path, *jars: str) -> None:
    """A Maven that brings these jars, each with its own name in it."""
    brings = "".join(f'printf %s {jar} >"$folder/{jar}"\n' for jar in jars)
    put(tmp_path / "bin" / "mvn", EMPTY_JARS + brings)


def refused(environment: dict[str, str]) -> str:
    with pytest.raises(EnvironmentFailed) as caught:
        installed(environment)
    assert caught.value.exit_code == 4
    return str(caught.value)


def test_a_missing_java_is_named(tmp_path: Path, environment: dict[str, str]) -> None:
    there_is_none = {**environment, "PATH": str(tmp_path)}
    assert refused(there_is_none).startswith("ZooKeeper needs Java 17 or newer, and there is no")


def test_missing_jars_without_maven_are_named(tmp_path: Path, environment: dict[str, str]) -> None:
    said = refused({**environment, "PATH": str(tmp_path / "bin")})
    assert said.startswith(f"ZooKeeper {VERSION} is not in {cache(environment)}, and Maven (mvn)")


def test_a_jar_that_maven_did_not_bring_is_named(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    put_maven(tmp_path)
    assert refused(environment).startswith(f"Maven downloaded no zookeeper-{VERSION}.jar")
    assert not (cache(environment) / VERSION).exists()


def test_a_jar_with_another_content_is_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    put_maven(tmp_path, *(artifact.jar for artifact in JARS))
    assert "as Maven downloaded it, is another file" in refused(environment)
    assert not (cache(environment) / VERSION).exists()


def test_jars_in_the_cache_that_are_damaged_or_removed_are_named(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = cache(environment) / VERSION / "lib"
    library.mkdir(parents=True)
    for artifact in JARS:
        (library / artifact.jar).write_text(artifact.jar)
    digests = {one: hashlib.sha256(one.jar.encode()).hexdigest() for one in JARS}
    monkeypatch.setattr(distribution, "JARS", digests)
    (library.parent / "classes-17.jsa").touch()
    assert installed(environment).home == library.parent
    snappy = library / "snappy-java-1.1.10.5.jar"
    snappy.write_text("other")
    assert refused(environment).startswith(f"{snappy.name} of ZooKeeper {VERSION} is damaged")
    snappy.unlink()
    assert f"lacks {snappy.name}: remove" in refused(environment)


def test_a_server_that_does_not_start_leaves_no_archive_of_classes(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache(environment) / VERSION / "lib").mkdir(parents=True)
    monkeypatch.setattr(distribution, "JARS", {})
    assert refused(environment).startswith(f"a server of ZooKeeper {VERSION} did not start")
    assert [one.name for one in (cache(environment) / VERSION).iterdir()] == ["lib"]


def test_seven_jars_are_wanted_with_a_digest_each() -> None:
    assert len(distribution.JARS) == 7
    assert {len(digest) for digest in distribution.JARS.values()} == {64}
