"""The placement of replicas: pure arithmetic over broker ids, by the replication design."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

K = TypeVar("K")
Replicas = tuple[int, ...]


def place(brokers: Sequence[int], partitions: int, replicas: int) -> tuple[Replicas, ...]:
    """The replicas of each new partition, preferred one first (RP-01).

    Partition p has its preferred replica on broker i = p mod n; replica j (from 1) of the k-th
    partition (from 0) of broker i goes to broker (i + 1 + (j - 1 + k) mod (n - 1)) mod n.
    """
    ordered = sorted(brokers)
    n = len(ordered)
    assert 0 < replicas <= n, "checked by the caller"
    placed: list[Replicas] = []
    for number in range(partitions):
        i, k = number % n, number // n
        # With each further partition of a broker, its other replicas begin at the next neighbour.
        # So if the broker fails, its load is spread over all of them.
        others = [(i + 1 + (j - 1 + k) % (n - 1)) % n for j in range(1, replicas)]
        placed.append(tuple(ordered[x] for x in (i, *others)))
    return tuple(placed)


def add_brokers(
    held: Mapping[K, Replicas], old: Sequence[int], new: Sequence[int]
) -> dict[K, Replicas]:
    """The partitions that move when brokers are added, with their new replicas (RP-03).

    Replicas move from old brokers to new ones only, one at a time, from the broker with most
    replicas to the one with fewest, until no move makes the counts more equal. They then differ by
    at most one, if the counts of the old brokers did. A moved replica keeps its place in the list,
    so preferred leaders are spread alike.
    """
    load = Counter({broker: 0 for broker in (*old, *new)})
    preferred: Counter[int] = Counter()
    placed = dict(held)
    on: dict[int, list[K]] = {broker: [] for broker in old}
    for key, replicas in held.items():
        # Replicas on brokers that are not live count for nobody: they stay where they are.
        load.update(r for r in replicas if r in load)
        preferred[replicas[0]] += 1
        for broker in replicas:
            if broker in on:
                on[broker].append(key)
    moved: dict[K, Replicas] = {}
    while True:
        found = _next_move(placed, load, preferred, on, sorted(new))
        if found is None:
            return moved
        key, giver, taker = found
        before = placed[key]
        placed[key] = moved[key] = tuple(taker if r == giver else r for r in before)
        load[giver] -= 1
        load[taker] += 1
        if before[0] == giver:
            preferred[giver] -= 1
            preferred[taker] += 1
        on[giver].remove(key)


def _next_move(
    placed: Mapping[K, Replicas],
    load: Mapping[int, int],
    preferred: Mapping[int, int],
    on: Mapping[int, Sequence[K]],
    new: Sequence[int],
) -> tuple[K, int, int] | None:
    """A partition, the old broker that gives it, and the new one that takes it."""
    for taker in sorted(new, key=lambda b: (load[b], b)):
        for giver in sorted(on, key=lambda b: (-load[b], b)):
            # A move between counts that differ by one would only exchange them. The givers are
            # sorted by their load, so that no later one has more.
            if load[giver] - load[taker] < 2:
                break
            free = [key for key in on[giver] if taker not in placed[key]]
            if free:
                # A partition that the giver leads by preference is chosen while that makes the
                # counts of preferred leaders more equal, too; otherwise another one, if there is
                # any.
                lead = preferred[giver] - preferred[taker] > 1
                fits = (key for key in free if (placed[key][0] == giver) is lead)
                return next(fits, free[0]), giver, taker
    return None


def rebalance(
    held: Mapping[tuple[str, int], Replicas], brokers: Sequence[int]
) -> dict[tuple[str, int], Replicas]:
    """Places every partition again over these brokers, as if its topic were created now; returns
    the partitions whose replicas change, with their new replicas."""
    topics: dict[str, dict[int, Replicas]] = {}
    for (topic, index), replicas in held.items():
        topics.setdefault(topic, {})[index] = replicas
    moved: dict[tuple[str, int], Replicas] = {}
    for topic, partitions in topics.items():
        factor = min(len(brokers), max(len(r) for r in partitions.values()))
        placed = place(brokers, max(partitions) + 1, factor)
        for index, replicas in partitions.items():
            if placed[index] != replicas:
                moved[topic, index] = placed[index]
    return moved
