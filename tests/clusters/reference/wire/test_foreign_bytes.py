"""Thousands of malformed and mutated requests against living nodes: no crash, no hang, no leak.

A million of them are sent by `./dev bench malformed`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from direct_nodes import PORTS, Nodes, create, nodes_in
from foreign_bytes import TOPIC, Bombardment, Frames, connections, understood

FRAMES = 30_000
ROUNDS = 10
GROWTH_BYTES = 8 << 20
ANSWER_S = 5.0


@pytest.mark.real
def test_a_storm_of_foreign_bytes_leaves_both_nodes_as_they_were(tmp_path: Path) -> None:
    with nodes_in(tmp_path) as cluster:
        cluster.start_both()
        create(cluster, TOPIC)
        bombardment = Bombardment(cluster)
        memory = []
        for seed in range(ROUNDS):
            bombardment.send(seed, FRAMES // ROUNDS // len(PORTS))
            memory.append(bombardment.memory_bytes())
        warm, last = memory[ROUNDS // 3], memory[-1]
        assert bombardment.sent == FRAMES
        assert bombardment.slowest_s < ANSWER_S
        assert {n for n in last if last[n] - warm[n] > GROWTH_BYTES} == set(), (warm, last)
        assert heard(cluster) == {"controller-1", "broker-1"}


def heard(cluster: Nodes) -> set[str]:
    """The reasons for which connections were closed: the bytes did arrive."""
    counted = {
        node: Counter(type(body).__name__ for body in cluster.bodies(f"{node}#1"))
        for node in cluster.processes
    }
    return {node for node, kinds in counted.items() if kinds["ConnectionClosed"] > 1000}


@pytest.mark.parametrize("listener", PORTS)
def test_the_stream_is_the_same_again_and_of_every_kind(listener: str) -> None:
    assert [*connections(listener, 1, 200)] == [*connections(listener, 1, 200)]
    assert [*connections(listener, 1, 200)] != [*connections(listener, 2, 200)]
    assert sum(frames for _, frames in connections(listener, 1, 200)) == 200
    frames = Frames(listener, 1)
    names = Counter(understood(listener, frames.next()) for _ in range(3000))
    assert 0.3 < names[""] / 3000 < 0.8
    assert all(understood(listener, frames.whole()) for _ in range(300))
    assert len(names) > len(PORTS)
