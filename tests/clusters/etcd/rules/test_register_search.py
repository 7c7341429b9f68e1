"""ETCD-02 and ETCD-03 on small random histories of one key, beside a search for an order.

The rules compare revisions and never search. The search knows no revisions: it tries every order of
the operations, and whether a register would answer so. A store that answers the truth is accused of
nothing; one that lies is accused whenever no order explains what clients have seen.

More histories, from seed 7, with the root of the tree in PYTHONPATH:
`python tests/clusters/etcd/rules/test_register_search.py 20000 7`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random  # noqa: TID251 - seeded here
from typing import Final

from tests.clusters.etcd.etcd_histories import complete, invoke, verdict

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_clusters.etcd.clients.registers import COMPARE_FAILED

HISTORIES = 400
CLIENTS = ("clients/a#1", "clients/b#1", "clients/c#1")
MOST = 8
"""So many operations at most: the search tries every order."""
ABSENT: Final = ("", 0)
"""The value and the mod_revision of a key that nobody has written."""


@dataclass(frozen=True)
class Call:
    """An operation: when it was sent and answered (as places in the history), and the answer."""

    name: str
    client: str
    action: str
    sent: int
    expected: tuple[str, int] = ABSENT
    """What a swap wants to replace."""
    done: int = 1 << 30
    outcome: str = ""
    """`ok`, `refused` (a swap that found something else) or `unknown`."""
    seen: tuple[str, int] = ABSENT
    """The value and mod_revision that a read or a refused swap was answered, or a write's own."""
    revision: int = -1
    """Of the whole store."""


@dataclass
class Store:
    """The key, and the revision of the store, which other keys move on, too."""

    random: Random
    lies: float
    revision: int = 1
    state: tuple[str, int] = ABSENT

    def __post_init__(self) -> None:
        self.former = [(self.state, self.revision)]

    def apply(self, call: Call) -> Call:
        """Carries out an operation, and what it will be answered."""
        if self.random.random() < 0.3:
            self.revision += 1
        lie = self.random.random() < self.lies
        if call.action == "get":
            state, revision = self.random.choice(self.former) if lie else self._now
            if lie and self.random.random() < 0.5:
                revision = self.revision  # the key is old, and the store is not
            return replace(call, outcome="ok", seen=state, revision=revision)
        if call.action == "swap" and (self.state != call.expected) is not lie:
            return replace(call, outcome="refused", seen=self.state, revision=self.revision)
        self.revision += 1
        written = (call.name, self.revision)
        if not (lie and call.action == "put"):  # else it is lost
            self.state = written
        self.former.append(self._now)
        return replace(call, outcome="ok", seen=written, revision=self.revision)

    @property
    def _now(self) -> tuple[tuple[str, int], int]:
        return self.state, self.revision


def random_calls(random: Random, lies: float) -> Sequence[Call]:
    """Operations of clients side by side, which a store carries out one by one; and a last read."""
    store, known = Store(random, lies), {ABSENT}
    waiting: dict[str, Call] = {}
    applied: dict[str, Call] = {}
    done: list[Call] = []
    at = 0
    for _ in range(random.randrange(8, 40)):
        at += 1
        client = random.choice(CLIENTS)
        if client in applied:
            call = applied.pop(client)
            if random.random() < 0.2:
                call = replace(call, outcome="unknown")
            else:
                known.add(call.seen)
            done.append(replace(call, done=at))
        elif client in waiting:
            call = waiting.pop(client)
            if random.random() < 0.1:  # it is never carried out
                done.append(replace(call, done=at, outcome="unknown"))
            else:
                applied[client] = store.apply(call)
        elif len(done) + len(waiting) + len(applied) < MOST - 1:
            waiting[client] = Call(
                name=f"o{at}",
                client=client,
                action=random.choice(("put", "get", "get", "swap")),
                sent=at,
                expected=random.choice(sorted(known)),
            )
    done += [*waiting.values(), *(replace(call, outcome="") for call in applied.values())]
    last = store.apply(Call("last", CLIENTS[0], "get", sent=at + 1))
    return [*done, replace(last, done=at + 2)]


def linearizable(calls: Sequence[Call]) -> bool:
    """Whether some order, in which each operation lies between its begin and its end, explains
    every answer, by values alone."""
    told = [call for call in calls if call.outcome in ("ok", "refused")]
    open_ = [call for call in calls if call not in told and call.action != "get"]
    # An operation without an answer may end at any time, or never.
    return _explained(told, [replace(call, done=1 << 30) for call in open_], "")


def _explained(told: Sequence[Call], open_: Sequence[Call], value: str) -> bool:
    if not told:
        return True
    first_end = min(call.done for call in told)
    for call in (*told, *open_):
        if call.sent > first_end:
            continue
        holds = call.expected[0] == value
        if call.action == "get" or call.outcome == "refused":
            fits = call.seen[0] == value and not (call.action == "swap" and holds)
            then = value
        else:
            fits, then = call.action == "put" or holds, call.name
        left = [one for one in told if one is not call]
        still = [one for one in open_ if one is not call]
        if fits and _explained(left, still, then):
            return True
    return False


def history(calls: Sequence[Call]) -> HistoryBuilder:
    """The events of these operations."""
    h = HistoryBuilder()
    points = [(call.sent, False, call) for call in calls]
    points += [(call.done, True, call) for call in calls if call.outcome]
    for _, ends, call in sorted(points, key=lambda point: point[:2]):
        final = call.name == "last"
        if not ends:
            swap = {"expected": call.expected[1]} if call.action == "swap" else {}
            value = "" if call.action == "get" else call.name
            invoke(h, call.client, call.name, call.action, value=value, final=final, **swap)
            continue
        answer = {
            "ok": {},
            "refused": {"outcome": "failed", "error": COMPARE_FAILED},
            "unknown": {"outcome": "unknown", "error": "timed out"},
        }[call.outcome]
        seen, revision = (ABSENT[0], -1), -1
        if call.outcome != "unknown":
            seen, revision = call.seen, call.revision
        complete(
            h,
            call.client,
            operation=call.name,
            action=call.action,
            revision=revision,
            mod_revision=seen[1],
            value=seen[0],
            **answer,
        )
    return h


def violated(calls: Sequence[Call]) -> bool:
    h = history(calls)
    return any(verdict(h, clause).verdict is Outcome.VIOLATED for clause in ("ETCD-02", "ETCD-03"))


def words_of(calls: Sequence[Call]) -> str:
    return "\n".join(str(call) for call in calls)


def compared(count: int, seed: int, lies: float) -> tuple[Sequence[str], Counter[str]]:
    """What the rules miss, or accuse in vain, in so many histories; and what there was."""
    random, found, wrong = Random(seed), Counter[str](), []
    for _ in range(count):
        calls = random_calls(random, lies)
        fits, accused = linearizable(calls), violated(calls)
        found[f"{'an order' if fits else 'no order'}, {'accused' if accused else 'silent'}"] += 1
        # That an order fits by values does not mean that the revisions were right.
        if (not fits and not accused) or (accused and not lies):
            wrong.append(words_of(calls))
    return wrong, found


def test_a_store_that_answers_the_truth_is_accused_of_nothing() -> None:
    wrong, found = compared(HISTORIES, 1, lies=0.0)
    assert wrong == []
    assert found == {"an order, silent": HISTORIES}


def test_whatever_no_order_explains_is_accused() -> None:
    wrong, found = compared(HISTORIES, 2, lies=0.2)
    assert wrong == []
    assert found["no order, accused"] > HISTORIES / 10
    assert found["an order, silent"] > HISTORIES / 10


if __name__ == "__main__":
    for chance in (0.0, 0.2):
        mistakes, counts = compared(int(sys.argv[1]), int(sys.argv[2]), chance)
        print(*mistakes, dict(counts), f"{len(mistakes)} mistakes", sep="\n")
