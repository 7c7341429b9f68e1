"""The faults that sever links."""

from __future__ import annotations

SEVERING = (
    *("bridge", "cut", "cut_from_controllers", "cut_from_role", "cut_from_zookeeper", "halves"),
    *("isolate", "isolate_role", "majorities_ring", "partition"),
)
