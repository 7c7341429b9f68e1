"""Brokers in ZooKeeper mode log neither appends nor high watermarks, and owe none."""

from __future__ import annotations

from fencepost.judging.owed import Unprinted
from fencepost.testing import HistoryBuilder
from fencepost_kafka import ProduceCompleted
from fencepost_kafka.judging.owed import APPENDS, HIGH_WATERMARKS, LEADERSHIPS


def test_appends_and_high_watermarks_are_read_from_disks() -> None:
    h = HistoryBuilder()
    body = ProduceCompleted(
        operation="op", topic="orders", partition=0, acks=-1, outcome="ok", offset=0, error=""
    )
    h.add("clients/producer-1#1", body)
    for plane, lacking in (("zookeeper", [LEADERSHIPS]), ("kraft", [APPENDS, HIGH_WATERMARKS])):
        owed = (APPENDS, HIGH_WATERMARKS, LEADERSHIPS)
        unprinted = Unprinted(owed, plane)
        for event in h.events():
            unprinted.take(event)
        lacks = {one for one in owed if unprinted.lacks([one], "apache/kafka 9.9.9")}
        assert set(lacking) <= lacks
        assert (APPENDS in lacks) is (plane == "kraft")
