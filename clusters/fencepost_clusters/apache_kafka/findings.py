"""The known findings about Kafka, read from findings.toml beside this file."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from msgspec import convert

from fencepost import KnownFinding


@cache
def known_findings() -> Sequence[KnownFinding]:
    """Every finding of the file, in its order."""
    text = files("fencepost_clusters.apache_kafka").joinpath("findings.toml").read_text("utf-8")
    return tuple(convert(entry, KnownFinding) for entry in tomllib.loads(text)["finding"])
