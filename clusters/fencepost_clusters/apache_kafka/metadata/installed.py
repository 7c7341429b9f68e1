"""The schemas of metadata records in an installed version of Kafka."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

from fencepost import EnvironmentFailed
from fencepost_clusters.apache_kafka.metadata import schema
from fencepost_clusters.apache_kafka.metadata.schema import Schema


def schemas_in(home: Path) -> Mapping[int, Schema]:
    """The metadata records' schemas of an installed version, by their keys.

    Raises EnvironmentFailed if the version is missing, as on a host whose nodes run in containers.
    """
    jar = next((home / "lib").glob("kafka-metadata-*.jar"), None)
    if jar is None:
        raise EnvironmentFailed(
            f"Kafka {home.name}, whose schemas are needed to read its metadata log, is not in "
            f"{home.parent}: ./dev images kafka --kafka {home.name} installs it"
        )
    with zipfile.ZipFile(jar) as opened:
        texts = (
            opened.read(name).decode()
            for name in opened.namelist()
            if name.startswith("common/metadata/") and name.endswith(".json")
        )
        schemas = [schema.read(text) for text in texts]
        return {one.key: one for one in schemas if one is not None}
