"""Judges a link's change by its measurements: pure, so that every case has a test.

A cut shows in three measurements: a probe that was answered before stays unanswered, toxiproxy
counts bytes that entered the cut direction and did not leave it, and it lists the desired toxics. A
delay or a rate shows in how long an answer takes. A healed link answers again. If no node answers
behind the link, or no connection is open through any changed link, no process can notice the
change: the fault missed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fencepost.injection.probes import ProbeAnswer
from fencepost.injection.toxics import DOWNSTREAM, UPSTREAM
from fencepost.model.faults.hold import HoldCounts
from fencepost.model.runtime import HEALTHY, LinkState, Receipt
from fencepost.model.system.topology import Link

NOTHING: Mapping[Link, int] = {}
UNUSED = "no connection was open through any of these links"
# A question that takes 0.25 s at the link's rate is long beside an answer on loopback. A shorter
# delay than 5 ms cannot be told from the machine's own. An answer shows a delay from 80 % of it on.
_BULK_S = 0.25
_MOST_BULK = 32_000
_LEAST_MEASURABLE_MS = 5.0
_TOLERANCE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One link's change and its measurements. `before` is None if the link was cut already."""

    link: Link
    old: LinkState
    new: LinkState
    before: ProbeAnswer | None
    after: ProbeAnswer
    vanished: Mapping[str, int]
    open_before: int

    @property
    def worsened(self) -> bool:
        """Whether the change leads to another state, and that is not a healthy one."""
        return self.new not in (HEALTHY, self.old)

    @property
    def stays(self) -> bool:
        """Whether the link is healthy neither before nor after this change, which made nothing
        worse: what another fault does to it goes on."""
        worse = (self.new.cut_upstream and not self.old.cut_upstream) or (
            self.new.cut_downstream and not self.old.cut_downstream
        )
        healed = is_cut(self.old) and not is_cut(self.new)
        return self.new != HEALTHY and not worse and (healed or is_cut(self.new))

    @property
    def unseen(self) -> str:
        """The stream that this change cut and in which no byte was counted as dropped. Empty if
        there is none, or if the probe was not answered before, or is answered now."""
        # Then another sentence of `fails` says what is wrong, and asking once more would not help.
        if self.after.came or self.unanswered_before:
            return ""
        # The question vanishes upstream if that direction is cut. Only if it is not can an answer
        # exist that vanishes downstream. A direction that was cut before needs no evidence of its
        # own.
        if self.new.cut_upstream:
            newly, stream = not self.old.cut_upstream, UPSTREAM
        else:
            newly, stream = self.new.cut_downstream and not self.old.cut_downstream, DOWNSTREAM
        # Where nothing counts bytes, the silence is the measurement.
        return stream if newly and self.vanished.get(stream, 1) <= 0 else ""

    @property
    def unanswered_before(self) -> bool:
        """Whether a probe before the change had no answer."""
        return self.before is not None and not self.before.came

    def fails(self) -> str:
        """Why the measurements do not show the new state; empty if they show it."""
        # A heal needs an answer afterwards and none before: the link may have been cut until here.
        if self.new == HEALTHY:
            return "" if self.after.came else "no answer after healing"
        if self.unanswered_before:
            return "nothing answered before"
        return self._fails_as_cut() if is_cut(self.new) else self._fails_as_slow()

    def _fails_as_cut(self) -> str:
        if self.after.came:
            return "it still answers"
        return f"no byte was seen to vanish {self.unseen}" if self.unseen else ""

    def _fails_as_slow(self) -> str:
        least = added_ms(self.new) * _TOLERANCE
        if not self.after.came:
            # Silence is evidence if the prober gave up before the answer could be there: a delay of
            # 10 s against a patience of 5 s.
            return "" if least >= self.after.took_ms else "no answer at all"
        if least < _LEAST_MEASURABLE_MS:
            return f"a delay of {least:.1f} ms is too short to be measured"
        if self.after.took_ms < least:
            return f"an answer took {self.after.took_ms:.1f} ms, not {least:.0f} or more"
        return ""


def is_cut(state: LinkState) -> bool:
    """Whether anything is dropped."""
    return state.cut_upstream or state.cut_downstream


def bulk(state: LinkState) -> int:
    """The size in bytes of a question that shows the state's rate: it takes a quarter of a second,
    if a question may be that large."""
    return min(_MOST_BULK, int(state.rate_kb * 1000 * _BULK_S))


def added_ms(state: LinkState) -> float:
    """The least delay that a state adds to the answer to a question of `bulk` bytes."""
    # Jitter may shorten a delay as well as lengthen it: only what is left is certain.
    travel = 2 * max(0, state.latency_ms - state.jitter_ms)
    return travel + (bulk(state) / state.rate_kb if state.rate_kb else 0)


def judge(
    trials: Sequence[Trial],
    differences: Sequence[str],
    notes: Sequence[str],
    *,
    unasked: int,
    direct: Mapping[Link, int] = NOTHING,
) -> Receipt:
    """The receipt for changed links, of which `unasked` could not be probed; `direct` are the
    connections of their sources that pass no link, and so escape the change."""
    # One link that fails spoils the receipt: a partition with a hole is another fault than the one
    # that the test asked for.
    problems = [f"{trial.link}: {why}" for trial in trials if (why := trial.fails())]
    problems += [f"{link}: {said}" for link, said in zip(direct, evading(direct), strict=True)]
    problems += [f"toxiproxy disagrees: {difference}" for difference in differences]
    worsened = [trial for trial in trials if trial.worsened]
    # One connection through any worsened link is enough, since a node may have no use for another
    # one. Without any, no process can have noticed: a cut of an idle link is not yet a
    # fault.
    unused = bool(worsened) and not any(trial.open_before for trial in worsened)
    only_unused = unused and not problems
    if unused:
        problems.append(UNUSED)
    if problems:
        # If all were silent before, the system's probe is the likely culprit; if one was, its node
        # is.
        unanswered = bool(worsened) and all(trial.unanswered_before for trial in worsened)
        evidence = "; ".join([*problems, *notes])
        return Receipt(False, evidence, only_unused, idle=unused, unanswered=unanswered)
    return Receipt(True, "; ".join([*_evidence(trials), *notes, *_beside(unasked)]))


def evading(direct: Mapping[Link, int]) -> Sequence[str]:
    """The connections that pass no link, a sentence for each link that they evade."""
    return [
        f"{count} connections of {link.source} pass no link, and dial the address of "
        f"{link.target} itself"
        if count > 1
        else f"a connection of {link.source} passes no link, and dials the address of "
        f"{link.target} itself"
        for link, count in direct.items()
    ]


def answering_nobody(links: Collection[Link]) -> Sequence[str]:
    """The nodes at the ends of these links, a sentence for each."""
    return [f"{name} answers nobody" for name in sorted({link.target for link in links})]


def judge_use(connections: Mapping[Link, int]) -> Receipt:
    """The receipt for links that are in use, by the number of connections open through each."""
    if count := sum(connections.values()):
        return Receipt(True, f"open connections through these links now: {count}")
    return Receipt(False, UNUSED, unused=True, idle=bool(connections))


def judge_release(counts: HoldCounts) -> Receipt:
    """The receipt for a release; `counts` are the link's counts after it."""
    # `dropped` is no failure of a release: a hold may drop messages by its action, or with their
    # connection.
    lost = counts.lost or counts.last_error
    return Receipt(not counts.waiting and not lost, str(counts))


def _evidence(trials: Sequence[Trial]) -> Sequence[str]:
    said = []
    slowest = max((t.before.took_ms for t in trials if t.before is not None), default=0.0)
    cut = [trial for trial in trials if is_cut(trial.new) and not trial.stays]
    if cut:
        silence = min(trial.after.took_ms for trial in cut)
        # Links that an earlier fault had cut were not asked before: the figures are of the others
        # alone.
        earlier = [trial for trial in cut if trial.before is None]
        said.append(
            f"{_links(cut)} answered within {slowest:.1f} ms before, not within {silence:.0f} ms "
            "after"
            + (f" ({len(earlier)} of them cut before already)" if earlier else "")
            + f"; {_vanished(cut)}; {sum(trial.open_before for trial in cut)} connections were open"
        )
    slow = [trial for trial in trials if not is_cut(trial.new) and trial.new != HEALTHY]
    if newly := [trial for trial in slow if not trial.stays]:
        took = f"{_links(newly)} took {_fastest(newly):.0f} ms or more to answer"
        said.append(f"{took}, {slowest:.1f} before")
    if slow_still := [trial for trial in slow if trial.stays]:
        took = f"{_links(slow_still)} took {_fastest(slow_still):.0f} ms or more to answer"
        said.append(f"{took}: slow still, by another fault")
    if cut_still := [trial for trial in trials if is_cut(trial.new) and trial.stays]:
        silence = min(trial.after.took_ms for trial in cut_still)
        said.append(
            f"{_links(cut_still)} did not answer within {silence:.0f} ms, and "
            f"{_vanished(cut_still)}: cut still, by another fault"
        )
    healed = [trial for trial in trials if trial.new == HEALTHY]
    if healed:
        last = max(trial.after.took_ms for trial in healed)
        said.append(f"{_links(healed)} answered within {last:.1f} ms, without any toxic")
    return said


def _vanished(trials: Sequence[Trial]) -> str:
    if not any(trial.vanished for trial in trials):
        return "its toxiproxy counts no bytes"
    up = sum(trial.vanished[UPSTREAM] for trial in trials)
    down = sum(trial.vanished[DOWNSTREAM] for trial in trials)
    return f"{up} bytes vanished upstream, {down} downstream"


def _fastest(trials: Sequence[Trial]) -> float:
    return min(trial.after.took_ms for trial in trials)


def _links(trials: Sequence[Trial]) -> str:
    return "1 link" if len(trials) == 1 else f"{len(trials)} links"


def _beside(unasked: int) -> Sequence[str]:
    return [f"{unasked} links that could not be asked were set too"] if unasked else []
