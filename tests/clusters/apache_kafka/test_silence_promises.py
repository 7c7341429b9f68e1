"""KR-02: which silence of a broker counts, from when on, and until when."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import (
    BOUND_MS,
    CONTROLLER,
    CONTROLLERS,
    FIRST,
    OBSERVER,
    SESSION_MS,
    begun,
    ended,
    healed,
    injected,
    isolated,
    record,
    verdict,
)
from tests.clusters.apache_kafka.test_heartbeat_promises import answered, expires

from fencepost import FaultTookEffect, NodeStarted
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerDeleted,
    ControllerElected,
    ControllerResigned,
    MetadataApplied,
    MetadataCommitted,
)

STARTED_AGAIN = NodeStarted(role="broker", node_id=1, incarnation="two", log_end=-1)


def violated(h: HistoryBuilder) -> int:
    return verdict(h, "KR-02").violated


@pytest.mark.parametrize(("missing", "broken"), [(0, 1), (1, 0)])
def test_a_cut_of_one_direction_keeps_a_broker_silent_if_it_is_to_every_controller(
    missing: int, broken: int
) -> None:
    h = begun()
    cut = [("broker-1", one) for one in CONTROLLERS[missing:]]
    injected(h, "cut", "broker-1", *CONTROLLERS, cut=cut)
    record(h.after(BOUND_MS + 1), 20, fenced=True)
    assert violated(h) == broken


@pytest.mark.parametrize(("ms", "broken"), [(BOUND_MS, 0), (BOUND_MS + 1, 1)])
def test_a_broker_may_be_silent_for_the_whole_bound(ms: int, broken: int) -> None:
    h = begun()
    ended(h, FIRST)
    record(h.after(ms - 1), 20, fenced=True)
    assert violated(h) == broken


@pytest.mark.parametrize(("fault", "broken"), [("isolate", 0), ("partition", 1)])
def test_a_silence_that_is_late_is_taken_back_by_the_healing_of_its_own_fault_only(
    fault: str, broken: int
) -> None:
    """The healing began in time, and was recorded once other events had come."""
    h = begun()
    injected(h, "partition", "broker-2", "broker-3", cut=[("broker-2", "broker-3")])
    isolated(h, "broker-1")
    began_ns = h.after(1_000).now_ns
    record(h.after(BOUND_MS), 20, fenced=True)
    healed(h, fault, began_ns)
    assert violated(h) == broken


@pytest.mark.parametrize(("ms", "broken"), [(BOUND_MS, 0), (BOUND_MS + 1, 1)])
@pytest.mark.parametrize("how", ["ended", "paused", "cut off", "healed"])
def test_a_broker_that_was_silent_before_its_unfencing_was_read_is_fenced_a_session_later(
    how: str, ms: int, broken: int
) -> None:
    h = begun()
    record(h, 12, fenced=True)
    if how == "ended":
        ended(h, FIRST)
    elif how == "paused":
        injected(h, "pause", FIRST)
    else:
        isolated(h, "broker-1")
    if how == "healed":
        healed(h, "isolate")
    record(h, 13, fenced=False)
    record(h.after(ms - 1), 20, fenced=True)
    assert violated(h) == (broken and how != "healed")


@pytest.mark.parametrize(
    "late",
    [
        (CONTROLLER, ControllerElected(epoch=1, log_end=9, last_epoch=1)),
        ("controller-2#1", ControllerResigned(epoch=1, reason="higher_epoch")),
    ],
)
def test_a_line_about_an_earlier_term_that_is_read_late_gives_no_time(
    late: tuple[str, ControllerElected | ControllerResigned],
) -> None:
    h = begun()
    h.add("controller-2#1", ControllerElected(epoch=2, log_end=9, last_epoch=1))
    ended(h, FIRST)
    h.after(2_000)
    h.add(*late)
    h.add(late[0], ControllerResigned(epoch=1, reason="higher_epoch"))
    record(h.after(BOUND_MS), 20, fenced=True)
    found = verdict(h, "KR-02")
    assert (found.violated, found.exercised) == (1, 0)


def test_a_silence_names_the_election_since_which_its_bound_counts() -> None:
    h = begun()
    ended(h, FIRST)
    death = h.events()[-1].ref
    h.after(2_000).add("controller-2#1", ControllerElected(epoch=2, log_end=9, last_epoch=1))
    election = h.events()[-1].ref
    record(h.after(BOUND_MS + 1), 20, fenced=True)
    (found,) = verdict(h, "KR-02").violations
    assert found.because == (death, election)


def test_without_an_active_controller_nothing_is_overdue() -> None:
    h = begun()
    h.add(CONTROLLER, ControllerResigned(epoch=1, reason="no_majority"))
    ended(h, FIRST)
    h.after(2 * BOUND_MS)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("ms", "fenced", "exercised"),
    [
        (SESSION_MS * 3 // 4 - 1, True, 0),
        (SESSION_MS * 3 // 4, True, 1),
        (BOUND_MS, True, 1),
        (BOUND_MS + 1, True, 0),
        (SESSION_MS, False, 0),
    ],
    ids=["too early", "a session later", "at the bound", "too late", "not fenced itself"],
)
def test_a_registration_that_waited_for_the_session_to_end_fences_the_one_before(
    ms: int, fenced: bool, exercised: int
) -> None:
    """The controller looks for ended sessions now and then, and compares the clock at once as a
    process asks for the id: so a process that asks all the time nearly always comes first. Its
    registration, which is fenced, is all that fences the former one. One that comes early says
    nothing of the session: whether it may take the id is for KR-01."""
    h = begun()
    ended(h, FIRST)
    record(h.after(ms - 1), 20, fenced=fenced, incarnation="two")
    assert verdict(h, "KR-02").exercised == exercised
    assert violated(h) == (ms > BOUND_MS)


@pytest.mark.parametrize(("offset", "broken"), [(20, 0), (11, 1)])
def test_a_dead_broker_that_is_deleted_need_not_be_fenced(offset: int, broken: int) -> None:
    """A record of before, which is read once more, deletes nothing."""
    h = begun()
    ended(h, FIRST)
    h.add(OBSERVER, BrokerDeleted(offset=offset, broker_id=1))
    h.after(2 * BOUND_MS)
    assert violated(h) == broken


WHOLE_MS = 4 * BOUND_MS + 60_000
"""How long a broker may be silent in all."""


def elections(h: HistoryBuilder, for_ms: int, first: int = 2) -> None:
    """One each two seconds, which no fault explains."""
    for number in range(for_ms // 2_000):
        process = ("controller-2#1", CONTROLLER)[number % 2]
        elected = ControllerElected(epoch=first + number, log_end=9, last_epoch=1)
        h.after(1_999).add(process, elected)


@pytest.mark.parametrize(("for_ms", "broken"), [(WHOLE_MS - 1_000, 0), (WHOLE_MS + 1_000, 1)])
def test_elections_that_nothing_explains_give_no_time_for_good(for_ms: int, broken: int) -> None:
    h = begun()
    ended(h, FIRST)
    elections(h, for_ms)
    record(h, 20, fenced=True)
    found = verdict(h, "KR-02")
    assert (found.violated, found.exercised) == (broken, 1 - broken)


def test_the_whole_bound_counts_from_the_end_of_what_may_disturb_elections() -> None:
    """A fault upon controllers or their links, and the end and the begin of one."""
    cut = [("controller-1", "controller-2")]
    for begin, end, broken in (
        (lambda h: injected(h, "cut", *cut[0], cut=cut), lambda h: healed(h, "cut"), 0),
        (lambda h: injected(h, "pause", CONTROLLER), lambda h: healed(h, "pause"), 0),
        (lambda h: ended(h, "controller-3#1"), lambda h: ended(h, "controller-3#2"), 0),
        (lambda h: injected(h, "pause", "broker-2#1"), lambda h: healed(h, "pause"), 1),
    ):
        h = begun()
        ended(h, FIRST)
        begin(h)
        elections(h, WHOLE_MS - 4_000)
        end(h)
        elections(h, WHOLE_MS - 4_000, first=200)
        assert violated(h) == broken


def test_that_no_controller_is_known_for_long_decides_nothing() -> None:
    h = begun()
    h.add(CONTROLLER, ControllerResigned(epoch=1, reason="no_majority"))
    ended(h, FIRST)
    h.after(WHOLE_MS - 10)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED
    record(h.after(20), 20, fenced=True)
    assert verdict(h, "KR-02").verdict is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("fault", "arguments", "broken"),
    [
        ("slow_link", '{"latency_ms":100,"jitter_ms":24}', 1),
        ("slow_link", '{"latency_ms":100,"jitter_ms":25}', 0),
        ("slow_link", '{"latency_ms":1,"rate_kb":1}', 0),
        ("slow_link", "", 0),
        ("cut", '{"latency_ms":1}', 0),
    ],
)
@pytest.mark.parametrize("chosen", [True, False])
def test_a_short_delay_between_controllers_gives_no_time_to_fence(
    chosen: bool, fault: str, arguments: str, broken: int
) -> None:
    """Nor does it explain that elections last."""
    h = begun()
    cut = [("controller-1", "controller-3")]
    injected(h, fault, *cut[0], cut=cut, arguments=arguments)
    ended(h, FIRST)
    if chosen:
        h.after(600_000)
    else:
        elections(h, WHOLE_MS + 4_000)
    record(h, 20, fenced=True)
    assert violated(h) == broken


HINDERED_MS = 60_000
"""How long a fault that stops nothing gives a controller more time."""


@pytest.mark.parametrize(
    ("fault", "victim", "late_ms", "broken"),
    [
        ("slow_disk", CONTROLLER, HINDERED_MS + BOUND_MS - 10, 0),
        ("slow_disk", CONTROLLER, HINDERED_MS + BOUND_MS + 10, 1),
        ("slow_disk", "controller-2#1", BOUND_MS + 10, 1),
        ("pause", CONTROLLER, 10 * HINDERED_MS, 0),
    ],
)
def test_a_fault_that_stops_no_controller_gives_it_a_minute(
    fault: str, victim: str, late_ms: int, broken: int
) -> None:
    h = begun()
    injected(h, fault, victim)
    began_ns = h.now_ns
    ended(h, FIRST)
    record(h.after(late_ms - (h.now_ns - began_ns) // 1_000_000), 20, fenced=True)
    assert violated(h) == broken


def test_a_fault_that_stopped_no_controller_excuses_until_its_end() -> None:
    for later_ms, broken in ((BOUND_MS - 10, 0), (BOUND_MS + 10, 1)):
        h = begun()
        injected(h, "slow_disk", CONTROLLER)
        ended(h, FIRST)
        h.after(20_000)
        healed(h, "slow_disk")
        record(h.after(later_ms), 20, fenced=True)
        assert violated(h) == broken


def test_a_fencing_that_a_fault_explains_being_late_exercises_nothing() -> None:
    h = begun()
    injected(h, "pause", CONTROLLER)
    ended(h, FIRST)
    record(h.after(BOUND_MS + 1), 20, fenced=True)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


def kept_back(h: HistoryBuilder, fault: str, arguments: str, ways: int = 3) -> None:
    """The heartbeats of broker 1, on its links to some controllers."""
    cut = [("broker-1", one) for one in CONTROLLERS[:ways]]
    injected(h, fault, "broker-1", *CONTROLLERS, cut=cut, arguments=arguments)


ALL = '{"apis":[63],"first":0}'


@pytest.mark.parametrize(
    ("fault", "arguments", "ways", "broken"),
    [
        ("hold", ALL, 3, 1),
        ("hold", ALL, 2, 0),
        ("hold", '{"apis":[63],"first":1}', 3, 0),
        ("hold", '{"apis":[62],"first":0}', 3, 0),
        ("hold", '{"apis":[63],"first":0,"action":"delay","delay_ms":60000}', 3, 1),
        ("hold", '{"apis":[63],"first":0,"action":"delay","delay_ms":600}', 3, 0),
        ("slow_link", '{"latency_ms":60000}', 3, 1),
        ("slow_link", '{"latency_ms":60000}', 2, 0),
        ("slow_link", f'{{"latency_ms":{BOUND_MS}}}', 3, 0),
        ("slow_link", f'{{"latency_ms":{BOUND_MS + 9},"jitter_ms":9}}', 3, 0),
        ("slow_link", f'{{"latency_ms":{BOUND_MS + 9},"jitter_ms":8}}', 3, 1),
        ("slow_link", '{"rate_kb":1}', 3, 0),
    ],
)
def test_heartbeats_that_are_all_kept_back_for_longer_than_a_session_are_silence(
    fault: str, arguments: str, ways: int, broken: int
) -> None:
    h = begun()
    kept_back(h, fault, arguments, ways)
    record(h.after(600_000), 20, fenced=True)
    found = verdict(h, "KR-02")
    assert (found.violated, found.exercised) == (broken, 0)


@pytest.mark.parametrize(("heard", "broken"), [(True, 0), (False, 1)])
def test_a_heartbeat_that_came_in_ends_the_silence_of_those_that_are_held(
    heard: bool, broken: int
) -> None:
    h = begun()
    kept_back(h, "hold", ALL)
    h.after(2_000)
    if heard:
        answered(h)
    record(h.after(BOUND_MS), 20, fenced=True)
    assert violated(h) == broken


def test_a_broker_whose_heartbeats_are_held_is_silent_once_the_fault_has_its_receipt() -> None:
    for heals, broken in ((False, 1), (True, 0)):
        h = begun()
        cut = [("broker-1", one) for one in CONTROLLERS]
        injected(h, "hold", "broker-1", *CONTROLLERS, cut=cut, arguments=ALL, receipt=False)
        h.after(60_000).add("harness", FaultTookEffect(fault_id="hold-1", evidence="1 held"))
        h.after(2_000)
        if heals:
            healed(h, "hold")
        record(h.after(BOUND_MS), 20, fenced=True)
        assert violated(h) == broken


def test_an_election_while_heartbeats_are_delayed_gives_time_until_they_come_in() -> None:
    h = begun()
    kept_back(h, "slow_link", '{"latency_ms":6000}')
    h.after(3_000).add(CONTROLLER, ControllerElected(epoch=2, log_end=9, last_epoch=1))
    record(h.after(60_000), 20, fenced=True)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


def applied(h: HistoryBuilder, offset: int) -> None:
    h.add("broker-2#1", MetadataApplied(offset=offset, epoch=1))


@pytest.mark.parametrize(
    ("ms", "offset", "broken"), [(BOUND_MS, 20, 0), (BOUND_MS + 1, 20, 1), (BOUND_MS, 19, 1)]
)
@pytest.mark.parametrize(("meanwhile", "deleted"), [(False, False), (True, False), (True, True)])
def test_a_fencing_counts_from_when_a_node_had_applied_it(
    ms: int, offset: int, broken: int, meanwhile: bool, deleted: bool
) -> None:
    """The observers may read it seconds later. Events in between do not know of it."""
    h = begun()
    applied(h, 11)
    ended(h, FIRST)
    applied(h.after(ms - 1), offset)
    h.after(2_000)
    if meanwhile:
        injected(h, "elsewhere")
    h.after(1_000)
    if deleted:
        h.add(OBSERVER, BrokerDeleted(offset=20, broker_id=1))
    else:
        record(h, 20, fenced=True)
    found = verdict(h, "KR-02")
    assert (found.violated, found.exercised) == (broken, 0 if deleted or broken else 1)


@pytest.mark.parametrize(
    ("after_ms", "reads_ms", "outcome"),
    [
        (SESSION_MS, 0, Outcome.UNKNOWN),
        (SESSION_MS, 5_000, Outcome.UNKNOWN),
        (SESSION_MS, 5_001, Outcome.VIOLATED),
        (BOUND_MS, 0, Outcome.VIOLATED),
    ],
)
def test_a_session_that_a_controller_ended_in_time_decides_nothing_if_no_observer_reads_on(
    after_ms: int, reads_ms: int, outcome: Outcome
) -> None:
    h = begun()
    ended(h, FIRST)
    expires(h.after(after_ms))
    if reads_ms:
        other = MetadataCommitted(offset=30, epoch=1, kind="TopicRecord", digest="")
        h.after(reads_ms - 1).add(OBSERVER, other)
    assert verdict(h.after(60_000), "KR-02").verdict is outcome


def test_a_record_that_was_read_late_takes_back_the_last_silence_only() -> None:
    h = begun()
    ended(h, FIRST)
    h.after(BOUND_MS + 1).add("broker-1#2", STARTED_AGAIN)
    record(h, 20, fenced=True)
    record(h, 21, fenced=False, incarnation="two")
    ended(h, "broker-1#2")
    applied(h.after(SESSION_MS), 22)
    injected(h.after(2_000), "elsewhere")
    record(h, 22, fenced=True, incarnation="two")
    found = verdict(h, "KR-02")
    assert (found.violated, found.exercised) == (1, 1)
