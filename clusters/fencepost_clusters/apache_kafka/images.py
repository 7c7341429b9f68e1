"""Apache Kafka in an image that somebody else made: an image of our own on top of it.

Of theirs only the Java and the jars of Kafka are used. Ours adds what a node needs here, as the
image has it that `images/kafka/Dockerfile` makes of a release: the agent that shows metrics, Log4j
if Kafka came with another library, an archive of the classes that a start loads, and `/slot`, whose
owner is the user of pods. The archive is made by a node that runs in it, so an image in which Kafka
does not start is found before a run begins.

Kafka's own code runs in containers only. The metadata of a new disk, which nodes are given, come
out of that image, and record schemas out of the jars.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from fencepost import EnvironmentFailed, last_words
from fencepost.images import open_image
from fencepost_clusters.apache_kafka.builds import Build
from fencepost_clusters.apache_kafka.distribution import (
    AGENT,
    AGENT_IN_IMAGE,
    IN_FOREIGN,
    LOG4J,
    bring_agent,
    bring_logging,
    has_first_metadata,
    home_of,
    other_logging,
)
from fencepost_clusters.apache_kafka.foreign_image import LIBS, java_in
from fencepost_clusters.java import alone

_DOCKERFILE = """\
FROM {image}
# Programs are started as they are, by no script of the image.
ENTRYPOINT []
HEALTHCHECK NONE
ENV PATH="{java}:{path}"
USER root
COPY kafka {home}
RUN mkdir -p /slot/data /slot/work && chown -R 65532:65532 /slot {home}
USER 65532:65532
RUN sh {home}/archive/archive.sh {home} formatted
"""


def image_on(build: Build, environment: Mapping[str, str], resources: Mapping[str, str]) -> str:
    """The image of our own on the image of a build; makes it unless it is there, which takes a
    minute. `resources` are `archive.sh` and the configuration of the logs.

    Raises EnvironmentFailed if Kafka does not start in it, if what is added cannot be downloaded,
    or if the name has another image by now.
    """
    home = home_of(build, environment)
    made_of = sha256("\0".join((_DOCKERFILE, AGENT, LOG4J, *resources.values())).encode())
    tag = f"fencepost/kafka-on:{home.name}-{made_of.hexdigest()[:8]}"
    with (
        open_image(build.image, environment) as image,
        alone(home.parent / f"{home.name}.lock"),
    ):
        if image.id[:12] != home.name:
            raise EnvironmentFailed(
                f"another image has got the name {build.image} since it was looked at: run it again"
            )
        if image.extended(tag) and has_first_metadata(home):
            return tag
        dockerfile = _DOCKERFILE.format(
            image=build.image,
            java=java_in(image).parent,
            path=image.environment.get("PATH", ""),
            home=IN_FOREIGN,
        )
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as scratch:
            folder = Path(scratch)
            context = _context(build, environment, folder, resources)
            try:
                image.extend(tag, dockerfile, context)
            except EnvironmentFailed as failed:
                raise EnvironmentFailed(
                    f"Kafka {build.version} does not start in the image {build.image}: "
                    f"{last_words(failed.detail) or failed}",
                    failed.detail,
                ) from failed
            with open_image(tag, environment) as own:
                own.copy(str(IN_FOREIGN), folder)
            for made in folder.glob("*.checkpoint"):
                made.rename(home / made.name)
    return tag


def _context(
    build: Build, environment: Mapping[str, str], folder: Path, resources: Mapping[str, str]
) -> Mapping[str, Path | str]:
    """What is added to the image; the jars that it has itself as links."""
    lib = home_of(build, environment) / "lib"
    left_out = set(other_logging(lib))
    own = {jar.name: f"{LIBS}/{jar.name}" for jar in lib.glob("*.jar") if jar not in left_out}
    (folder / "logging").mkdir()
    bring_logging(build, lib, folder / "logging", environment)
    added = {jar.name: jar for jar in (folder / "logging").glob("*.jar")}
    for name, text in resources.items():
        (folder / name).write_text(text)
    return {
        **{f"kafka/lib/{name}": source for name, source in {**own, **added}.items()},
        **{f"kafka/archive/{name}": folder / name for name in resources},
        f"kafka/{AGENT_IN_IMAGE}": bring_agent(environment),
    }
