"""What an image that somebody else made must have, so that nodes of Kafka can run in it.

Imported only where an image is named: it needs the package docker, which is an extra.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from fencepost import UsageError
from fencepost.images import Image

LIBS = "/opt/kafka/libs"
"""The folder of the jars in Kafka's own image."""
_SHELL = "/bin/sh"


def check_runs(image: Image) -> None:
    """Raises UsageError for an image in which no node can be started."""
    if not image.has(_SHELL):
        raise UsageError(f"the image {image.name} has no {_SHELL}, by which its nodes are started")
    java_in(image)


def java_in(image: Image) -> PurePosixPath:
    """The `java` of an image: that of its JAVA_HOME, or else of its PATH. Raises UsageError."""
    own = image.environment.get("JAVA_HOME")
    folders = [f"{own}/bin"] if own else []
    folders += image.environment.get("PATH", "").split(":")
    for folder in filter(None, folders):
        if image.has(f"{folder}/java"):
            return PurePosixPath(folder, "java")
    raise UsageError(f"the image {image.name} has no Java: no java in its JAVA_HOME or its PATH")
