"""Our rules about clients beside a port of Jepsen's analyses, on random histories.

More of them, from seed 7, with the root of the tree in PYTHONPATH:
`python tests/suites/clients/test_jepsen_analyses.py 10000 7`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from random import Random  # noqa: TID251 - seeded here

from tests.suites.clients.jepsen_analyses import ANALYSES, anomalies, less_of_ours, more_of_ours
from tests.suites.clients.small_histories import READER, Message, Step, violated

HISTORIES = 400
PRODUCERS, CONSUMERS = ("p", "q"), ("c", "d")


def random_history(random: Random) -> Sequence[Step]:
    """Producers and consumers of a log in which, in most histories, something goes wrong; and at
    the end a reading of the whole log."""
    log: list[str] = []
    in_flight: dict[str, str] = {}
    next_of = dict.fromkeys(CONSUMERS, 0)
    history: list[Step] = []
    wrong = random.choice((0.0, 0.05, 0.15))
    for number in range(random.randrange(4, 25)):
        if random.random() < 0.55:
            producer = random.choice(PRODUCERS)
            if producer in in_flight:
                name = in_flight.pop(producer)
                history.append(_end(random, log, producer, name, wrong))
            else:
                in_flight[producer] = f"m{number}"
                history.append(Step(producer, "sends", [Message(f"m{number}")]))
        else:
            history += _poll(random, log, next_of, wrong)
        if log and random.random() < wrong / 2:  # the log loses its end, or one message of it
            del log[random.choice((-1, random.randrange(len(log)))) :]
    read = [Message(name, offset) for offset, name in enumerate(log)]
    if read:
        history.append(Step(READER, "polls", read))
    history.append(Step(READER, "reads", [Message("", len(log))]))
    return history


def _end(random: Random, log: list[str], producer: str, name: str, wrong: float) -> Step:
    """A write ends: it is stored and acknowledged, unless something goes wrong."""
    drawn = random.random()
    if drawn < 0.1:  # refused for good, and yet stored if that is wrong
        if random.random() < wrong * 3:
            log.append(name)
        return Step(producer, "fails", [Message(name)])
    if drawn < 0.2:  # no answer: it may be stored, and anywhere
        if random.random() < 0.5:
            log.append(name)
        return Step(producer, "loses", [Message(name)])
    if random.random() < wrong:  # acknowledged, and not stored
        return Step(producer, "acks", [Message(name, len(log))])
    if random.random() < wrong:  # stored twice
        log.append(name)
    place = len(log)
    if log and random.random() < wrong:  # stored in the place of another, or before it
        place = random.randrange(len(log))
        if random.random() < 0.5:
            log[place] = name
            return Step(producer, "acks", [Message(name, place)])
    log.insert(place, name)
    return Step(producer, "acks", [Message(name, place)])


def _poll(random: Random, log: list[str], next_of: dict[str, int], wrong: float) -> Sequence[Step]:
    consumer = random.choice(CONSUMERS)
    if random.random() < 0.1:
        next_of[consumer] = 0
        return [Step(consumer, "goes", [Message("to", -2)])]
    start = next_of[consumer]
    if random.random() < 3 * wrong:  # it is given what it has had, or not what comes next
        start = max(0, start + random.choice((-2, -1, 1, 2)))
    got = [Message(name, offset) for offset, name in enumerate(log)][start:][: random.randrange(4)]
    if not got:
        return []
    next_of[consumer] = got[-1].offset + 1
    return [Step(consumer, "polls", got)]


def words_of(history: Sequence[Step]) -> str:
    return "; ".join(
        " ".join((step.process, step.does, *(f"{one.name}@{one.offset}" for one in step.messages)))
        for step in history
    )


def disagreement(history: Sequence[Step]) -> str:
    """How our rules and the port differ without a reason; empty: they do not."""
    ours, theirs = violated(history) & set(ANALYSES), anomalies(history)
    missed = theirs - ours - less_of_ours(history)
    beside = ours - theirs - more_of_ours(history)
    if not missed and not beside:
        return ""
    return f"missed {sorted(missed)}, beside {sorted(beside)}: {words_of(history)}"


def compared(count: int, seed: int) -> tuple[Sequence[str], Counter[str]]:
    """The disagreements on so many histories, and how often each anomaly was found by both."""
    random, found = Random(seed), Counter[str]()
    wrong = []
    for _ in range(count):
        history = random_history(random)
        found.update(violated(history) & anomalies(history))
        if why := disagreement(history):
            wrong.append(why)
    return wrong, found


def test_our_rules_and_jepsens_analyses_find_the_same_anomalies() -> None:
    wrong, found = compared(HISTORIES, 1)
    assert wrong == []
    assert set(found) == set(ANALYSES)  # each of them was tried


if __name__ == "__main__":
    disagreements, both = compared(int(sys.argv[1]), int(sys.argv[2]))
    print(*disagreements, dict(both), f"{len(disagreements)} disagreements", sep="\n")
