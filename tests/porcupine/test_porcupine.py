"""Our rules agree with a checker of others (porcupine), on healthy and broken runs.

Porcupine finds a partition's log not linearizable exactly if one of CONTENT was violated. The other
clauses of the data plane (an early answer, RP-04; an uncommitted read, RP-07) are left out. These
clauses can be broken although all clients read correct data. The order in which one consumer gets
messages (poll-skip, nonmonotonic-poll) is not a property of the log either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import operations as ops
import pytest
from msgspec.structs import replace

from fencepost import Codec, Event, Shape
from fencepost.history import merge as history
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.model.errors import Violation
from fencepost.plugins.manager import Plugins, load
from fencepost.runs import random_schedule
from fencepost.runs.run import Run, RunResult, RunSpec
from fencepost_kafka import MetadataCommitted, Polled, ProduceCompleted, ReadCompleted

pytestmark = pytest.mark.tool

CONTENT = frozenset(
    {
        *("JEPSEN-lost-write", "JEPSEN-unseen", "JEPSEN-duplicate"),
        *("JEPSEN-inconsistent-offsets", "JEPSEN-aborted-read"),
    }
)
SPAN_MS = 15_000
FAULTS = frozenset(
    {
        *("cut", "cut_from_controllers", "hold", "isolate", "kill", "partition"),
        *("pause", "slow_link", "terminate"),
    }
)
"""A list of its own: with another fault, each seed would draw another schedule, and porcupine takes
too long for some. No disk is harmed, and no second process brings another one, since porcupine does
not know which messages are forfeited."""
UNHURRIED = {"replica.lag.time.max.ms": "30000", "controller.quorum.fetch.timeout.ms": "5000"}
"""A node that is cut off stays in the ISR, or the active controller, until it was asked for
something."""
LOADED = frozenset(
    f"{topic}-{partition}" for topic in ("orders", "audit") for partition in range(3)
)
"""The logs under load. A schedule may create further topics."""
MUCH = 50
"""Fewer operations than that upon a log would show nothing."""

Load = Callable[[Run], None]


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ops.build(tmp_path_factory.mktemp("porcupine"))


def lossy(seed: int) -> Load:
    """A random schedule under load."""

    def inject_faults(run: Run) -> None:
        run.clients.load()
        random_schedule.conduct(run, seed, SPAN_MS, FAULTS)

    return inject_faults


def lose_leader(run: Run) -> None:
    """The followers lose their leader, which may acknowledge further writes and dies; after its
    restart it must follow.

    Under a defect the producer is not idempotent, because an idempotent one would detect the damage
    and end. Without a defect it is, because another one may store a message twice.
    """
    run.clients.create_topic("orders", partitions=1)
    healthy = not run.spec.shape.defects
    writes = run.clients.produce("orders", acks="all", rate=50, idempotent=healthy)
    run.cluster.eventually(writes.acked_at_least(50))
    leader = run.cluster.leader("orders", 0)
    followers = [follower.name for follower in run.cluster.followers("orders", 0)]
    with run.faults.cut(followers, leader):
        run.cluster.eventually(writes.goes_on(20))
        if not healthy:  # no other replica has what it acknowledges now
            run.cluster.eventually(writes.acked_at_least(len(writes.acked) + 20))
        with run.faults.kill(leader):
            run.cluster.eventually(writes.acked_at_least(len(writes.acked) + 30))


def create_beside_the_quorum(run: Run) -> None:
    """A controller that its voters cannot answer is asked for a topic."""
    run.clients.create_topic("before", partitions=1)
    active = run.cluster.active_controller
    others = [node.name for node in run.cluster.controllers if node != active]
    with run.faults.partition(active.name, others), suppress(Violation):
        run.clients.create_topic("beside", partitions=1)
    run.cluster.eventually(run.cluster.recovered)


def play(
    plugins: Plugins,
    path: Path,
    work: Load,
    *defects: str,
    seed: int = 1,
    runtime: str = "simulated",
    settings: Mapping[str, str] | None = None,
) -> tuple[RunResult, Sequence[Event]]:
    """A run and its history."""
    storm = runtime == "simulated"
    shape = Shape(defects=defects, settings=settings or {})
    spec = RunSpec(plugins.system("reference/quorum"), shape, runtime, seed, lossy=storm)
    with Run.start(spec, plugins, RunFolder.create(path)) as run:
        work(run)
        result = run.finish()
    return result, list(history.read(result.folder, Codec(plugins.event_kinds)))


SEEDS = 12
"""Among so many seeds one shows each defect, whatever the random schedules draw."""


def agreed(result: RunResult, judged: Mapping[str, ops.Judged]) -> bool:
    """Whether both judge the contents as correct; fails if they disagree. A log that porcupine
    searched for too long decides nothing beside one that it found illegal."""
    broken = CONTENT & set(result.judgement.of(Outcome.VIOLATED))
    results = {one.result for one in judged.values()}
    assert bool(broken) == ("Illegal" in results), (broken, judged)
    assert broken or results == {"Ok"}, judged
    return not broken


# ---------------------------------------------------------------------------------- healthy, broken


@pytest.mark.parametrize("seed", [1, 3, 6])
def test_both_find_a_healthy_cluster_sound(
    seed: int, plugins: Plugins, program: Path, tmp_path: Path
) -> None:
    result, events = play(plugins, tmp_path / "run", lossy(seed), seed=seed)
    judged = ops.judge(program, ops.of_partitions(events))
    assert agreed(result, judged)
    assert judged.keys() >= LOADED
    assert min(judged[log].operations for log in LOADED) >= MUCH
    metadata = ops.judge(program, ops.of_metadata(events))[ops.METADATA]
    assert metadata.result == "Ok"
    assert metadata.operations >= MUCH


@pytest.mark.parametrize(
    "defect",
    [
        "acks-before-followers",
        *(
            pytest.param(one, marks=pytest.mark.nightly)
            for one in ("elects-outside-isr", "never-truncates", "serves-uncommitted")
        ),
    ],
)
def test_both_find_a_broken_cluster_unsound(
    defect: str, plugins: Plugins, program: Path, tmp_path: Path
) -> None:
    """Both agree on every seed, and one of the first seeds shows the defect."""

    def sound(seed: int) -> bool:
        work = lossy(seed)
        result, events = play(plugins, tmp_path / f"run-{seed}", work, defect, seed=seed)
        return agreed(result, ops.judge(program, ops.of_partitions(events)))

    assert not all(sound(seed) for seed in range(1, SEEDS + 1))


@pytest.mark.parametrize(
    ("defect", "found_by"),
    [
        ("acks-before-followers", "RP-04"),
        ("serves-uncommitted", "RP-07"),
        pytest.param("elects-outside-isr", "RP-06", marks=pytest.mark.nightly),
    ],
)
def test_a_defect_that_no_client_suffered_from_is_found_by_our_rules_alone(
    defect: str, found_by: str, plugins: Plugins, program: Path, tmp_path: Path
) -> None:
    """So it is in one of the first seeds."""

    def alone(seed: int) -> bool:
        work = lossy(seed)
        result, events = play(plugins, tmp_path / f"run-{seed}", work, defect, seed=seed)
        sound = agreed(result, ops.judge(program, ops.of_partitions(events)))
        return sound and found_by in result.judgement.of(Outcome.VIOLATED)

    assert any(alone(seed) for seed in range(1, SEEDS + 1))


@pytest.mark.real
@pytest.mark.parametrize("defect", ["", "acks-before-followers"])
def test_both_agree_on_real_processes(
    defect: str, plugins: Plugins, program: Path, tmp_path: Path
) -> None:
    defects = (defect,) if defect else ()
    result, events = play(
        plugins, tmp_path / "run", lose_leader, *defects, runtime="process", settings=UNHURRIED
    )
    judged = ops.judge(program, ops.of_partitions(events))
    assert judged["orders-0"].operations >= MUCH
    assert agreed(result, judged) is not bool(defect)
    assert ops.judge(program, ops.of_metadata(events))[ops.METADATA].result == "Ok"


@pytest.mark.parametrize("defect", ["", "answers-uncommitted"])
def test_both_agree_on_the_metadata_log(
    defect: str, plugins: Plugins, program: Path, tmp_path: Path
) -> None:
    """QC-08: answered changes are committed. No partition's log shows a violation of it."""
    defects = (defect,) if defect else ()
    result, events = play(
        plugins, tmp_path / "run", create_beside_the_quorum, *defects, settings=UNHURRIED
    )
    metadata = ops.judge(program, ops.of_metadata(events))[ops.METADATA]
    assert metadata.result == ("Illegal" if defect else "Ok")
    assert ("QC-08" in result.judgement.of(Outcome.VIOLATED)) is bool(defect)


# -------------------------------------------------------- what the checker must be able to find


@pytest.fixture(scope="module")
def sound(plugins: Plugins, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Event]:
    """A healthy history, to be lied about."""
    return play(plugins, tmp_path_factory.mktemp("sound") / "run", lossy(1))[1]


def where(events: Sequence[Event], holds: Callable[[Event], bool]) -> int:
    """The middle one of the events that are so."""
    found = [at for at, event in enumerate(events) if holds(event)]
    return found[len(found) // 2]


def forged(events: Sequence[Event], at: int, **changes: object) -> Sequence[Event]:
    """The history, but for what one event says."""
    lie = replace(events[at], body=replace(events[at].body, **changes))
    return [*events[:at], lie, *events[at + 1 :]]


def acknowledged(event: Event) -> bool:
    body = event.body
    return isinstance(body, ProduceCompleted) and body.acks == -1 and body.outcome == "ok"


def polled(event: Event) -> bool:
    return isinstance(event.body, Polled) and not event.body.final and len(event.body.offsets) > 0


@pytest.mark.parametrize("lie", ["offset", "failed", "content", "place"])
def test_one_lie_about_a_partition_is_found(
    lie: str, sound: Sequence[Event], program: Path
) -> None:
    at = where(sound, polled if lie in {"content", "place"} else acknowledged)
    body = sound[at].body
    if isinstance(body, ProduceCompleted):
        changes: dict[str, object] = (
            {"offset": body.offset + 1} if lie == "offset" else {"outcome": "failed", "offset": -1}
        )
    else:
        assert isinstance(body, Polled)
        changes = (
            {"operations": ("written by no client", *body.operations[1:])}
            if lie == "content"
            else {"offsets": tuple(offset + 1 for offset in body.offsets)}
        )
    judged = ops.judge(program, ops.of_partitions(forged(sound, at, **changes)))
    assert isinstance(body, ProduceCompleted | Polled)
    broken = [one.log for one in judged.values() if one.result == "Illegal"]
    assert broken == [f"{body.topic}-{body.partition}"]


def test_an_acknowledged_write_that_no_reading_shows_is_found(
    sound: Sequence[Event], program: Path
) -> None:
    """A reading of a log that ends with such a write ends one message early."""
    promised = {e.body.operation for e in sound if acknowledged(e)}
    stored = {
        (e.body.topic, e.body.partition, offset): operation
        for e in sound
        if isinstance(e.body, Polled)
        for offset, operation in zip(e.body.offsets, e.body.operations, strict=True)
    }

    def ends_with_one(event: Event) -> bool:
        body = event.body
        if not isinstance(body, ReadCompleted):
            return False
        return stored.get((body.topic, body.partition, body.end - 1)) in promised

    at = where(sound, ends_with_one)
    body = sound[at].body
    assert isinstance(body, ReadCompleted)
    log = f"{body.topic}-{body.partition}"
    judged = ops.judge(program, ops.of_partitions(forged(sound, at, end=body.end - 1)))
    assert judged[log].result == "Illegal"


def test_a_node_that_replays_another_record_is_found(sound: Sequence[Event], program: Path) -> None:
    at = where(sound, lambda event: isinstance(event.body, MetadataCommitted))
    judged = ops.judge(program, ops.of_metadata(forged(sound, at, digest="another")))
    assert judged[ops.METADATA].result == "Illegal"


def test_a_search_without_time_is_unknown(program: Path) -> None:
    """A log of a hundred writes that may each have happened any time, and one that cannot have."""
    lines = [
        ops.Operation(
            log="log",
            kind="append",
            offset=ops.ANYWHERE,
            client=n,
            call=0,
            returned=ops.NEVER,
            value=str(n),
        )
        for n in range(100)
    ]
    read = ops.Operation(
        log="log", kind="whole", offset=0, client=0, call=1, returned=2, values=("no such",)
    )
    judged = ops.judge(program, [*lines, read], limit_s=1)
    assert judged["log"].result == "Unknown"
