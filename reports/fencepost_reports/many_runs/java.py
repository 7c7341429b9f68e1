"""The Java that Spark will find, and its archive of classes. Imports nothing of Spark."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from fencepost import EnvironmentFailed, java_program

JAVA = 17
"""The oldest Java that Spark 4 runs on."""
LIMIT_S = 20


def check_java() -> str:
    """The version of the Java that Spark will find, such as `17.0.12`; raises EnvironmentFailed if
    there is none, or it is too old."""
    java = java_program(os.environ)
    needed = f"the report needs Java {JAVA} or newer"
    if java is None or not Path(java).exists():
        raise EnvironmentFailed(f"Java is missing: {needed}, as JAVA_HOME or on the path")
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=LIMIT_S
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise EnvironmentFailed(f"{java} does not run: {needed}") from failed
    found = re.search(r'version "(?:1\.)?((\d+)[^"]*)"', said)
    if found is None or int(found[2]) < JAVA:
        version = found[2] if found else "of an unknown version"
        raise EnvironmentFailed(f"{java} is Java {version}: {needed}")
    return found[1]


def archive_place(java: str, spark: str, home: str) -> Path:
    """Where the classes are archived that the Spark of this version, in its folder, loads.

    It is beside the jars: Java takes nothing from an archive of jars at another place."""
    return Path(home) / f"fencepost-{spark}-java-{java}.jsa"
