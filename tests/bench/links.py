"""What a link costs: the same client and the same broker, through the link and past it.

    ./dev bench links [--json] [--runs N]

A raw client sends Produce requests over one connection: one at a time with one message, for the
time of an answer; and batches of 64 KiB, several under way, for throughput. One broker, acks=1, so
that nothing but the broker and the link is in it; turns alternate.
"""

from __future__ import annotations

import socket
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from report import parse, percentile, show, summary

from fencepost import ProbeProduce, Role, Shape
from fencepost.plugin_manager import load
from fencepost.run import Run, RunSpec, new_folder
from fencepost_plugins.kafka_clients.probe import build, frame_request

REQUESTS = 1_000
BATCHES, UNDER_WAY = 300, 5
MESSAGE_BYTES = 64 * 1024
T = TypeVar("T")
SETTINGS = {"min.insync.replicas": "1", "default.replication.factor": "1"}


def produce_frame(size: int) -> bytes:
    """A Produce request of one message of that many bytes."""
    operation = "x" * size
    probe = ProbeProduce(
        operation=operation, slot="broker-1", broker=1, topic="bench", partition=0, acks=1
    )
    request, _ = build(probe)
    return frame_request("bench", 1, request)


def read_answer(connection: socket.socket) -> None:
    size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    connection.recv(size, socket.MSG_WAITALL)


def one_at_a_time(connection: socket.socket) -> list[float]:
    """Microseconds from each request to its answer."""
    frame = produce_frame(100)
    took = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        connection.sendall(frame)
        read_answer(connection)
        took.append((time.perf_counter() - began) * 1e6)
    return took


def throughput(connection: socket.socket) -> float:
    """Megabytes a second, with a few batches under way."""
    frame = produce_frame(MESSAGE_BYTES)
    began = time.perf_counter()
    for number in range(BATCHES):
        connection.sendall(frame)
        if number >= UNDER_WAY:
            read_answer(connection)
    for _ in range(UNDER_WAY):
        read_answer(connection)
    return BATCHES * MESSAGE_BYTES / (time.perf_counter() - began) / 1e6


def measure(address: tuple[str, int], what: Callable[[socket.socket], T]) -> T:
    with socket.create_connection(address, timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return what(connection)


def main() -> None:
    options = parse(__doc__, runs=5)
    plugins = load()
    system = plugins.system("reference/quorum")
    spec = RunSpec(system, Shape(controllers=1, brokers=1, settings=SETTINGS))
    latency: dict[str, list[float]] = {"linked": [], "direct": []}
    speed: dict[str, list[float]] = {"linked": [], "direct": []}
    with (
        tempfile.TemporaryDirectory() as out,
        Run.start(spec, plugins, new_folder(Path(out), "bench")) as run,
    ):
        run.clients.create_topic("bench", partitions=1)
        place = run.runtime.place(run.runtime.layout.of(Role.BROKER)[0])
        ways = {"linked": place.advertised, "direct": place.address}
        for _ in range(options.runs):
            for way, host in ways.items():
                address = (host, system.client_port())
                latency[way] += measure(address, one_at_a_time)
                speed[way].append(measure(address, throughput))
    show(
        options,
        {
            "bench": "links",
            "runs": options.runs,
            **{
                f"{way}_us": {
                    "p50": round(percentile(figures, 0.5), 1),
                    "p99": round(percentile(figures, 0.99), 1),
                }
                for way, figures in latency.items()
            },
            **{f"{way}_mb_per_s": summary(figures) for way, figures in speed.items()},
        },
    )


if __name__ == "__main__":
    main()
