"""Controllers of which a random schedule empties the disk."""

from __future__ import annotations

from dataclasses import replace

from tests.kafka.test_random_schedule import LAYOUT, TIMING, WITH_SERVER, begun, drawn_at

from fencepost import Moment, Planned
from fencepost_kafka.faults.random_faults import KafkaFaultChooser
from fencepost_kafka.faults.situation import Servers

FORGETFUL = KafkaFaultChooser(TIMING, voters_forget=True)


def wiped(
    moment: Moment, chooser: KafkaFaultChooser = FORGETFUL, seeds: int = 400
) -> list[Planned]:
    """The plans that empty a controller's disk."""
    drawn = drawn_at(moment, chooser, seeds)
    return [one for one in drawn if any(name.startswith("controller") for name in one.victims)]


def test_a_controllers_disk_is_emptied_beside_other_faults() -> None:
    """`MetadataLost` knows what is forfeited then."""
    busy = frozenset({"broker-2", "controller-3"})
    drawn = wiped(Moment(begun(), LAYOUT, ("wipe_disk",), affected=busy))
    assert {name for one in drawn for name in one.victims} == {"controller-1", "controller-2"}
    assert not any(one.alone for one in drawn)


def test_a_controllers_disk_is_emptied_only_where_rules_know_what_is_forfeited() -> None:
    moment = Moment(begun(), LAYOUT, ("wipe_disk",))
    assert wiped(moment, KafkaFaultChooser(TIMING)) == []
    servers = Servers("zookeeper", lambda view, layout: ())
    assert wiped(replace(moment, layout=WITH_SERVER), replace(FORGETFUL, servers=servers)) == []


def test_what_may_forfeit_the_rest_of_a_run_is_drawn_seldom() -> None:
    """A voter forgets while another one may lack what is committed."""
    free = Moment(begun(), LAYOUT, ("wipe_disk",))
    often = len(wiped(free, seeds=2_000))
    for one in (
        Moment(begun(), LAYOUT, ("wipe_disk",), mending=frozenset({"controller-2"})),
        Moment(begun("controller-2"), LAYOUT, ("wipe_disk",)),
    ):
        assert 0 < len(wiped(one, seeds=2_000)) < often / 2
