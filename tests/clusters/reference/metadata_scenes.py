"""Scenes in the world of bare cores that are aimed at the metadata: its snapshots, its format, and
brokers that do not keep up with it."""

from __future__ import annotations

from chaos import CONTROLLERS
from scenes import Scene
from world import SECOND, World

from fencepost_clusters.reference.wire import messages as m

OFTEN = {"metadata_snapshot_interval_records": "20", "metadata_snapshot_slice_records": "2"}
Settings = dict[str, str]


def changes_while_written(world: World) -> None:
    """A broker goes and comes back: its partitions' records change while snapshots are written."""
    world.create_topic("orders", partitions=12)
    for _ in range(2):
        world.kill("broker-3")
        world.run(4)
        world.start("broker-3")
        assert world.until(world.healthy, 20)
        world.run(1)


def standbys_due_together(world: World) -> None:
    """So much changes that every controller's snapshot is due at once."""
    for number in range(3):
        world.create_topic(f"payments-{number}", partitions=30)
        world.run(3)


def left_behind(world: World) -> None:
    """A standby and a broker miss so much that the log no longer holds what they need next; a
    broker's disk is lost, too."""
    standby = next(c for c in CONTROLLERS if c != world.active_slot())
    world.isolate(standby)
    world.isolate("broker-3", *CONTROLLERS)
    for number in range(3):
        request = m.CreateTopicsRequest(
            topics=(
                m.CreatableTopic(name=f"orders-{number}", num_partitions=30, replication_factor=2),
            ),
            timeout=2000,
        )
        world.answer("broker-1", request)
        world.run(3)
    world.kill("broker-2")
    del world.disks["broker-2"]
    world.cuts.clear()
    world.start("broker-2")
    assert world.until(world.healthy, 30)
    world.run(2)
    standbys_due_together(world)


def behind_on_metadata(world: World) -> None:
    """A broker's heartbeats arrive, and what it fetches of the metadata comes late."""
    world.metadata_delay_ns["broker-2"] = SECOND
    request = m.CreateTopicsRequest(
        topics=(m.CreatableTopic(name="orders", num_partitions=20, replication_factor=3),),
        timeout=2000,
    )
    world.answer("broker-1", request)
    world.run(3)
    world.metadata_delay_ns.clear()


def older_software(world: World) -> None:
    """A broker that supports the first level of the metadata's format alone asks to be let in."""
    listeners = (m.Listener(name="CLIENT", host="broker-9", port=9092),)
    supported = (m.Feature(name="metadata.format", min_level=1, max_level=1),)
    for _ in range(2):
        asked = m.BrokerHeartbeatRequest(
            target_state=3,
            broker_id=9,
            broker_epoch=-1,
            lease_start_time_ms=0,
            cur_metadata_offset=-1,
            listeners=listeners,
            incarnation_id=None,
            current_state=1,
            features=supported,
        )
        world.ask(world.active_slot(), asked, "broker-9#1", "CONTROLLER")
        world.run(0.5)


def slow_start(world: World) -> None:
    """A broker registers again and again long before it gets the metadata."""
    world.create_topic("orders", partitions=3)
    world.kill("broker-2")
    world.run(1)
    world.metadata_delay_ns["broker-2"] = SECOND
    world.start("broker-2")
    world.run(3)
    world.metadata_delay_ns.clear()


FINDS: dict[str, tuple[Scene, Settings]] = {
    "snapshot-misses-changes": (changes_while_written, OFTEN),
    "two-snapshots-at-once": (standbys_due_together, OFTEN),
    "writes-newer-format": (slow_start, {}),
    "keeps-stale-broker": (behind_on_metadata, {"metadata_max_lag_records": "5"}),
    "admits-unsupporting-broker": (older_software, {"metadata_format_level": "2"}),
    "online-with-stale-metadata": (slow_start, {}),
    "lag-stays-zero": (left_behind, OFTEN),
}
"""Defect -> the scene in which it is found, and the cluster's settings there."""
