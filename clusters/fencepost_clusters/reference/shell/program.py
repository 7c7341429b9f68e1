"""The program of one node, which `__main__` starts.

Its configuration file holds: run, process, events (path), data (path), address, hosts, advertised,
name, ports, metrics_port (none: no metrics page), properties (Kafka's dotted names), defects, seed.
Exit codes: 0 asked to stop, 2 bad configuration, 4 a port or file was not available, or its disk or
metadata could not be read, 70 an exception in the node (the traceback is on standard error).
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - the one place where a node's chance is seeded
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec

from fencepost import NodeStopped, Recorder, UsageError
from fencepost_clusters.reference.assembly import assemble, check_site, read_settings
from fencepost_clusters.reference.core.node.settings import CLIENT_LISTENER
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.defects.catalogue import policies_with
from fencepost_clusters.reference.shell.node import NodeIdentity, NodeShell, instant
from fencepost_clusters.reference.shell.storage import DamagedFile, Disk
from fencepost_clusters.reference.wire import codec
from fencepost_clusters.reference.wire.record_batch import CorruptBatch
from fencepost_clusters.reference.wire.records import UnknownRecord
from fencepost_kafka import KINDS

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class NodeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See the module. `ports` maps each listener of this node to its port; `apps` is that of
    `Site`."""

    run: str
    process: str
    name: str
    events: str
    data: str
    address: str
    advertised: str
    hosts: dict[str, str]
    ports: dict[str, Port]
    properties: dict[str, str]
    defects: tuple[str, ...]
    seed: int
    metrics_port: Port | None = None
    apps: dict[str, tuple[str, Port]] = {}


def main(argv: list[str]) -> int:
    """Runs a node until it is asked to stop; returns the exit code."""
    if not __debug__:
        print("a node refuses to run without its assertions (python -O)", file=sys.stderr)
        return 2
    try:
        if len(argv) != 2:
            raise UsageError("give the path of one node.json")
        node = msgspec.json.decode(Path(argv[1]).read_bytes(), type=NodeFile)
        settings = read_settings(node.properties)
        site = Site(node.name, node.advertised, node.ports, node.process, node.apps)
        check_site(settings, site)
        policies = policies_with(node.defects)
    except (OSError, msgspec.DecodeError, UsageError) as error:
        print(f"bad node configuration: {error}", file=sys.stderr)
        return 2
    try:
        recorder = Recorder.open(Path(node.events), node.run, node.process, KINDS)
        disk = Disk(Path(node.data), settings.ms("log.segment.bytes"))
        # Seeded by the process's name, so that each process of a run draws other numbers.
        draw = random.Random(f"{node.run}/{node.seed}/{node.process}")
        offset_ms = settings.ms("clock.offset.ms")
        now = instant(offset_ms)
        core = assemble(
            settings, site, stored=disk.stored(), chance=draw.randint, policies=policies, now=now
        )
        identity = NodeIdentity(node.process, node.hosts, settings.rights, offset_ms)
        if settings.zookeeper:
            served, calls = codec.OVER_ZOOKEEPER[settings.plane]
            identity = replace(identity, listeners=served, calls=calls)
        running = NodeShell(core, disk, recorder, identity)
        apps = {f"{CLIENT_LISTENER}/{app}": port for app, (_, port) in node.apps.items()}
        listeners = {name: (node.address, port) for name, port in (node.ports | apps).items()}
        metrics = None if node.metrics_port is None else (node.address, node.metrics_port)
        return asyncio.run(running.run(listeners, metrics))
    except (DamagedFile, CorruptBatch, UnknownRecord) as error:
        print(f"{node.process} cannot read its disk: {error}", file=sys.stderr)
        recorder.record(NodeStopped(reason=str(error)))
        return 4
    except OSError as error:
        print(f"{node.process} cannot run: {error}", file=sys.stderr)
        return 4
