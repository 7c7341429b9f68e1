"""How long Apache Kafka takes from nothing to ready, beside six JVMs that only load it.

    ./dev bench kafka [--json] [--runs N] [--version V]

A start is 3 controllers and 3 brokers behind their links, until every broker is unfenced; a bounce
is SIGKILL to a broker until its next process has registered. Beside each, turn by turn, six JVMs
start at once with a node's options, load Kafka's class path, print its version and end. If there is
a container engine with the image (`./dev images kafka`), it measures the same in containers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from report import parse, show, summary
from start import NODES, cluster_start

from fencepost import EnvironmentFailed
from fencepost.runs.run import check_runtime
from fencepost_clusters.apache_kafka import distribution
from fencepost_clusters.apache_kafka.builds import released
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION, jvm_options, resource
from fencepost_kafka import Role

GOAL_S = 15.0


def bare_start(kafka: distribution.Distribution) -> float:
    """Seconds until six JVMs have printed Kafka's version.

    Raises CalledProcessError if one of them could not.
    """
    command = [
        *(kafka.java, *jvm_options(Role.BROKER), f"-XX:SharedArchiveFile={kafka.archive}"),
        *("-cp", ":".join(sorted(map(str, (kafka.home / "lib").glob("*.jar"))))),
        *("kafka.Kafka", "--version"),
    ]
    began = time.perf_counter()
    started = [
        subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
        for _ in range(NODES)
    ]
    for process in started:
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, process.args)
    return time.perf_counter() - began


def on(
    runtime: str, kafka: distribution.Distribution, out: Path, runs: int
) -> Mapping[str, object]:
    """The figures of one runtime, or the reason for their absence."""
    bare: list[float] = []
    ready: list[float] = []
    bounces: list[float] = []
    try:
        check_runtime(runtime)
        for _ in range(runs):
            bare.append(bare_start(kafka))
            started, bounced = cluster_start(out, runtime, f"apache/kraft@{kafka.build.version}")
            ready.append(started)
            bounces.append(bounced)
    except EnvironmentFailed as lacking:
        return {"skipped": str(lacking)}
    return {
        "ready_s": summary(ready),
        "six_bare_jvms_s": summary(bare),
        "ratio": round(median(s / b for s, b in zip(ready, bare, strict=True)), 2),
        "bounce_s": summary(bounces),
        "goal_s": GOAL_S,
        "met": median(ready) <= GOAL_S,
    }


def main() -> None:
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("--version", default=DEFAULT_VERSION, help="of Kafka")
    options = parse(__doc__, runs=5, more=chosen)
    kafka = distribution.installed(
        released(options.version), os.environ, resource("log4j2.properties")
    )
    with tempfile.TemporaryDirectory() as out:
        process = on("process", kafka, Path(out), options.runs)
        docker = on("docker", kafka, Path(out), options.runs)
    show(
        options,
        {
            "bench": "kafka",
            "version": options.version,
            "runs": options.runs,
            "process": process,
            "docker": docker,
        },
    )


if __name__ == "__main__":
    main()
