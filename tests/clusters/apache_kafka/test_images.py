"""Apache Kafka in somebody else's image: of it only the Java and the jars of Kafka are used."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import docker
import pytest
from tests import docker_bench
from tests.clusters.apache_kafka.test_builds import put_kafka

from fencepost import EnvironmentFailed, NotApplicable, UsageError
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec, check_spec, new_folder
from fencepost.runtimes.docker.engine import open_client
from fencepost.runtimes.docker.pods import IMAGE as POD
from fencepost_clusters.apache_kafka import builds
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION, KRaft, image_of
from fencepost_kafka import kafka_shape

pytestmark = pytest.mark.real

LABEL = "fencepost-test"
FOREIGN = "fencepost-test/kafka"
AS_APACHE = f"""\
FROM {image_of(DEFAULT_VERSION)}
USER root
RUN mv /opt/kafka/lib /opt/kafka/libs && rm -f /opt/kafka/*.* && rm -r /slot \\
    && groupadd --gid 1000 appuser && useradd --uid 1000 --gid 1000 appuser \\
    && chown -R appuser:root /opt/kafka && chmod -R ug+w /opt/kafka
USER appuser
VOLUME ["/etc/kafka/secrets", "/mnt/shared/config"]
ENV _JAVA_OPTIONS=-Xmx1m KAFKA_HEAP_OPTS=-Xmx1m CLASSPATH=/nowhere.jar
ENTRYPOINT ["/nowhere/of-theirs"]
CMD ["/etc/kafka/docker/run"]
"""
"""What is of no use to nodes here would break them: its entry point, its options, its user."""


@pytest.fixture(scope="module")
def client() -> Iterator[docker.APIClient]:
    docker_bench.usable_backend()
    found = open_client(os.environ)
    made = []
    try:
        if not found.images(image_of(DEFAULT_VERSION), quiet=True):
            if docker_bench.REQUIRED:
                pytest.fail(f"there is no image {image_of(DEFAULT_VERSION)}")
            pytest.skip(f"there is no image {image_of(DEFAULT_VERSION)}")
        yield found
        made = [
            tag
            for repository in (FOREIGN, "fencepost/kafka-on")
            for image in found.images(repository)
            for tag in image["RepoTags"]
        ]
    finally:
        for tag in reversed(made):
            found.remove_image(tag)
        found.prune_images({"dangling": True, "label": LABEL})
        found.close()


def built(
    client: docker.APIClient, name: str, dockerfile: str, files: Mapping[str, bytes] | None = None
) -> str:
    """An image that a stranger has built."""
    tag = f"{FOREIGN}:{name}"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for path, content in {**(files or {}), "Dockerfile": dockerfile.encode()}.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    context.seek(0)
    said = list(
        client.build(
            fileobj=context, custom_context=True, tag=tag, decode=True, network_mode="none",
            rm=True, forcerm=True, labels={LABEL: ""},
        )
    )  # fmt: skip
    assert not [line for line in said if "error" in line], said
    return tag


def jars(folder: Path, version: str = DEFAULT_VERSION) -> Mapping[str, bytes]:
    """A context with jars that are named as Kafka's and are none."""
    put_kafka(folder, version)
    return {f"libs/{jar.name}": jar.read_bytes() for jar in folder.glob("*.jar")}


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_cluster_runs_in_an_image_as_kafka_publishes_them(
    client: docker.APIClient, tmp_path: Path
) -> None:
    """Written to, broken and judged as any other; nobody starts what the image would start."""
    tag = built(client, DEFAULT_VERSION, AS_APACHE)
    plugins = load()
    system = plugins.system(f"apache/kraft@docker://{tag}")
    assert isinstance(system, KRaft)
    assert system.version == DEFAULT_VERSION
    spec = RunSpec(system, kafka_shape(controllers=1, brokers=2), "docker", seed=1)
    check_spec(spec)
    with Run.start(spec, plugins, new_folder(tmp_path, "image")) as run:
        run.clients.load()
        run.enter("inject")
        broker = run.cluster.node("broker-1")
        with run.faults.kill(broker):
            pass
        result = run.finish()
    result.check()
    assert result.injected == 1
    assert not result.missed
    assert result.folder.info().system == system.name


def test_an_image_runs_in_containers_only(client: docker.APIClient) -> None:
    tag = built(client, DEFAULT_VERSION, AS_APACHE)
    spec = RunSpec(KRaft().at(f"docker://{tag}"), kafka_shape(controllers=1, brokers=1))
    with pytest.raises(UsageError, match="runs on docker, and not on process"):
        check_spec(spec)


def test_an_image_is_known_by_its_id(
    client: docker.APIClient, tmp_path: Path, empty_cache: Path
) -> None:
    """Another image may get its name."""
    files, again = jars(tmp_path / "a"), jars(tmp_path / "b", "4.3.1")
    dockerfile = f"FROM {POD}\nCOPY libs /opt/kafka/libs\nENV PATH=/opt/java/bin:/bin\n"
    dockerfile += "USER root\nRUN mkdir -p /opt/java/bin && touch /opt/java/bin/java\n"
    first = builds.named(f"docker://{built(client, 'moved', dockerfile, files)}", os.environ)
    second = builds.named(f"docker://{built(client, 'moved', dockerfile, again)}", os.environ)
    assert (first.version, second.version) == (DEFAULT_VERSION, "4.3.1")
    assert first.key != second.key
    assert sorted(one.name for one in (empty_cache / "fencepost" / "kafka").rglob("lib")) == [
        "lib",
        "lib",
    ]


@pytest.mark.parametrize(
    ("name", "dockerfile", "with_jars", "says"),
    [
        ("no-jars", f"FROM {POD}\n", False, r"no Kafka in /opt/kafka/libs of the image .*no-jars"),
        ("no-shell", "FROM scratch\nCOPY libs /opt/kafka/libs\n", True, "has no /bin/sh"),
        ("no-java", f"FROM {POD}\nCOPY libs /opt/kafka/libs\n", True, "has no Java"),
    ],
)
def test_an_image_in_which_no_node_can_run_is_refused(
    name: str, dockerfile: str, with_jars: bool, says: str, client: docker.APIClient,
    tmp_path: Path, empty_cache: Path,
) -> None:  # fmt: skip
    tag = built(client, name, dockerfile, jars(tmp_path / "jars") if with_jars else None)
    for _ in range(2):  # what was refused is not in the cache
        with pytest.raises(UsageError, match=says):
            KRaft().at(f"docker://{tag}")
    left = client.containers(all=True, filters={"ancestor": tag})
    assert not left


def test_an_image_in_which_kafka_does_not_start_says_why(
    client: docker.APIClient, tmp_path: Path
) -> None:
    dockerfile = f"FROM {image_of(DEFAULT_VERSION)}\nCOPY libs /opt/kafka/libs\n"
    tag = built(client, "broken", dockerfile, jars(tmp_path / "jars"))
    system = KRaft().at(f"docker://{tag}")
    with pytest.raises(EnvironmentFailed, match=r"does not start in .*:broken: .*StorageTool"):
        system.fetch()


def test_an_image_that_is_not_there_is_named(client: docker.APIClient) -> None:
    with pytest.raises(EnvironmentFailed, match=r"no image 'nobody/has:this': pull it, or build"):
        KRaft().at("docker://nobody/has:this")


def test_a_folder_has_no_image(tmp_path: Path) -> None:
    put_kafka(tmp_path)
    system = KRaft().at(str(tmp_path))
    with pytest.raises(NotApplicable, match="is a folder, and there is no image of it"):
        system.image(next(iter(system.layout(kafka_shape(brokers=1)).slots)))
