"""The links of a run as faults see them: cuts that accumulate, changes that bring a receipt.

The problem. Faults overlap: two of them cut the same direction, or one cuts a link that another one
has slowed. The healing of one must leave the effect of the other. And a fault that was asked for
may have no effect: nothing used the link, the process dialled another address, toxiproxy did not do
it. A run with such a fault proves nothing, so each change is measured.

The state of a link. It is computed anew for each change, and never undone step by step: what was
set for the link itself, and cut in each direction that at least one fault cuts now. Cuts are
counted. So if two faults cut `node-1 -> node-2` and one heals, the direction stays cut.

The measurement. Links between live processes are probed, the states applied, and the links probed
again. `fencepost.injection.receipts` judges the answers; nothing is judged here. Four cases made
the waits what they are:

* A cut shows as silence, which must last longer than three times the slowest answer before it. If
  one node stalls for 1.5 s just then, the silence takes 4.6 s, leases run out, and the measurement
  changes what it measures. So a slow answer before a cut is asked for again. If the node is slow
  every time, the silence is long all the same.
* A node may stall after the cut. Then its answer leaves when the prober has closed, and no byte is
  counted as dropped. Links on which none was are asked once more, for longer.
* After a restart a node may not have dialled yet. The change waits for a first connection: through
  any of the links, since only some of them may ever be used.
* A node may dial the other one at its own address, beside the link. One connection through the link
  would be enough for a receipt, so connections that pass no link are counted, too: those that
  evade the change make it miss, and any others are named in its evidence. They evade a later fault.

If no process runs at both ends, a worse state is set without a measurement: the receipt may come
later (`in_use`), once a process connects.

What is not done. No link is repaired here, and no failure is found that no fault explains:
`fencepost.injection.watch` does that. Nothing knows which runtime this is: links, prober and time
are arguments. `fencepost.injection.links` sets the states in toxiproxies,
`fencepost.runtimes.simulated.network` in simulated links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, final

from fencepost.events.names import is_second
from fencepost.injection.links import Bytes
from fencepost.injection.probes import ProbeAnswer, Prober
from fencepost.injection.receipts import (
    Trial,
    answering_nobody,
    bulk,
    evading,
    is_cut,
    judge,
    judge_release,
    judge_use,
)
from fencepost.injection.toxics import DOWNSTREAM, UPSTREAM, toxics
from fencepost.model.clock import poll
from fencepost.model.errors import UsageError, no_such
from fencepost.model.faults.hold import Hold, HoldCounts
from fencepost.model.runtime import HEALTHY, LinkState, Receipt, describe
from fencepost.model.system.topology import Cut, Layout, Link

ANSWER_LIMIT_S = 2.0
"""How long a node may take to answer a probe, beside the delay that the state itself adds."""
LONGEST_WAIT_S = 5.0
"""The longest patience with one probe, however slow the link is."""
READY_LIMIT_S = 10.0
"""How long a node that was just started may take to answer, before its links change."""
CONNECT_LIMIT_S = 5.0
"""How long a change waits for a first connection through its links."""
HEAL_LIMIT_S = 10.0
"""How long links that are not cut are probed, after their change, until each has answered."""
COUNT_LIMIT_S = 1.0
"""How long to wait until each cut link has counted a byte as dropped."""
RELEASE_LIMIT_S = 20.0
"""How long held messages may take to leave: a new connection, and an answer to each over it."""
LEAST_SILENCE_S = 0.1
"""How long a cut link stays silent at least, however fast the answers were before."""
SILENCE_LIMIT_S = 5.0
"""How long a link without a fault may take to answer, at the end of a run."""
QUICK_MS = 250
"""An answer that takes longer, before a cut, may be that of a node that stalled for a moment."""
ASKED_AGAIN = 3
"""How often such a node is asked again; after that it counts as slow."""


Poll = Callable[[Callable[[], bool], float, float], bool]
"""Asks until the answer is true or a limit has passed; `fencepost.model.clock.poll` does it in real
time. Limit and interval are in seconds."""


class LinkControl(Protocol):
    """Sets links into states, and counts what they drop."""

    def state(self, link: Link) -> LinkState:
        """The desired state of the link."""
        ...

    def apply(self, wanted: Mapping[Link, LinkState]) -> Sequence[str]:
        """Brings these links into these states; returns a sentence for each repair that this
        needed. Raises UsageError, with nothing changed, for a state that makes no sense.
        """
        ...

    def differences(self, links: Sequence[Link]) -> Sequence[str]:
        """A sentence for each of these links that is not in its desired state."""
        ...

    def bytes_passed(self, links: Sequence[Link]) -> Mapping[tuple[Link, str], Bytes]:
        """The bytes that entered and left so far, by link and stream. Empty where nothing counts
        them: then a cut shows in silence alone."""
        ...

    def hold(self, link: Link, what: Hold) -> None:
        """See `Runtime.hold`."""
        ...

    def held(self, link: Link) -> HoldCounts:
        """See `Runtime.held`."""
        ...

    def release(self, link: Link) -> None:
        """Makes the link release what it holds; `held` shows when everything has left."""
        ...

    @property
    def holding(self) -> Sequence[Link]:
        """The links that choose among messages."""
        ...


@final
class Network:
    """The links of a run: the cuts on them, and the state that was set for each link itself."""

    def __init__(
        self,
        layout: Layout,
        links: LinkControl,
        prober: Prober,
        lives: Callable[[str], bool],
        *,
        unanswered: str = "",
        wait: Poll = poll,
    ) -> None:
        """`lives` says whether a process is alive in a slot now; `wait` lets time pass.

        `unanswered` is the message of the UsageError for a probe that no node has ever answered. If
        it is empty, no error is raised, and such a change has no receipt.
        """
        self._layout = layout
        self._links = links
        self._prober = prober
        self._lives = lives
        self._unanswered = unanswered
        """Empty as soon as any node has answered: from then on the probe is known to fit, and
        silence is the work of a fault."""
        self._wait = wait
        self._cuts: Counter[tuple[str, str]] = Counter()
        """(source, target) -> how many faults cut this direction. Never below 0: a fault may heal
        again after `heal` has lifted everything."""
        self._own = dict.fromkeys(layout.links, HEALTHY)
        """link -> the state that was set for the link itself, without cuts. Its keys are all the
        links that exist."""
        self._struck = False
        """Whether a fault has changed any link for the worse in this run."""

    def crossed(self, cut: Cut) -> Sequence[Link]:
        """The links that carry any of these directions; raises UsageError for an unknown slot."""
        known = {slot.name for slot in self._layout.slots}
        for name in sorted({name for direction in cut for name in direction}):
            if name not in known:
                raise no_such("slot", name, known)
        return self._layout.crossed(cut)

    def ends(self, cut: Cut) -> Collection[str]:
        """The slots at the ends of those links; raises UsageError as `crossed` does."""
        return {end for link in self.crossed(cut) for end in (link.source, link.target)}

    def apply_cut(self, cut: Cut) -> Receipt:
        """See `Runtime.apply_cut`."""
        links = self.crossed(cut)
        # Nothing was counted in `_cuts` then, and `lift_cut` of the same directions does no harm:
        # no link reads the count of a direction that no link carries.
        if not links:
            return Receipt(False, f"no link carries {_directions(cut)}")
        self._cuts.update(cut)
        return self._change(links)

    def lift_cut(self, cut: Cut) -> Receipt:
        """See `Runtime.lift_cut`."""
        links = self.crossed(cut)
        for direction in cut:
            # Every fault of a test heals at its end, also one whose cut `heal` has lifted already.
            # At -1 the next cut of this direction would bring the count to 0, and would cut
            # nothing.
            self._cuts[direction] = max(0, self._cuts[direction] - 1)
        return self._change(links)

    def set_links(self, links: Sequence[Link], state: LinkState) -> Receipt:
        """See `Runtime.set_links`."""
        for link in links:
            self._known(link)
        toxics(state)
        # After the checks, so that a wrong link or state changes nothing.
        self._own.update(dict.fromkeys(links, state))
        return self._change(links)

    def in_use(self, links: Sequence[Link]) -> Receipt:
        """See `Runtime.in_use`."""
        for link in links:
            self._known(link)
        return judge_use(self._prober.open_connections([one for one in links if self._runs(one)]))

    def hold(self, link: Link, what: Hold) -> None:
        """See `Runtime.hold`."""
        self._known(link)
        self._links.hold(link, what)

    def held(self, link: Link) -> HoldCounts:
        """See `Runtime.held`."""
        self._known(link)
        return self._links.held(link)

    def release(self, link: Link) -> Receipt:
        """See `Runtime.release`."""
        self._known(link)
        self._links.release(link)
        counts = HoldCounts()

        def gone() -> bool:
            nonlocal counts
            counts = self._links.held(link)
            return not counts.waiting

        self._wait(gone, RELEASE_LIMIT_S, 0.01)
        return judge_release(counts)

    def heal(self) -> Receipt:
        """See `Runtime.heal_links`."""
        # Before the cuts are lifted: what is released into a cut is dropped there, as it would have
        # been without the hold.
        for link in self._links.holding:
            self.release(link)
        self._cuts.clear()
        self._own = dict.fromkeys(self._layout.links, HEALTHY)
        # By the state in which the link is, since a cut is not part of `_own`. A healthy link is
        # not probed: only what changes is measured.
        unhealthy = [link for link in self._own if self._links.state(link) != HEALTHY]
        return self._change(unhealthy) if unhealthy else Receipt(True, "every link was healthy")

    def silent(self) -> Sequence[Link]:
        """The links between live processes that should be healthy, and through which nothing
        answers. None if no node answers the probe at all: it does not fit then."""
        # No probe has been answered in this run, so silence says nothing about links.
        if self._unanswered:
            return ()
        live = {
            link: HEALTHY
            for link in self._own
            if link.port not in self._layout.unasked
            and self._effective(link) == HEALTHY
            and self._runs(link)
        }
        answers = self._ask(live, live, SILENCE_LIMIT_S)
        found = [link for link in live if not answers[link].came]
        # All silent: a probe that does not fit is likelier than that every link has failed at once.
        return found if len(found) < len(live) else ()

    def bypassing(self) -> Sequence[str]:
        """See `SeesBypass.bypassing`."""
        return evading(self._direct()) if self._struck else ()

    def _direct(self) -> Mapping[Link, int]:
        """The connections that pass no link, of all nodes that run."""
        return self._prober.direct([link for link in self._own if self._runs(link)])

    def _runs(self, link: Link) -> bool:
        """Whether processes run at both of its ends."""
        return self._lives(link.source) and self._lives(link.target)

    def _known(self, link: Link) -> None:
        if link not in self._own:
            raise UsageError(f"there is no link {link}")

    def _effective(self, link: Link) -> LinkState:
        own = self._own[link]
        return replace(
            own,
            cut_upstream=own.cut_upstream or self._cuts[link.source, link.target] > 0,
            cut_downstream=own.cut_downstream or self._cuts[link.target, link.source] > 0,
        )

    def _change(self, links: Sequence[Link]) -> Receipt:
        """Brings the links into their effective states, and measures the change.

        What is to be known of the time before is asked before `apply`: of a connection that is open
        after it, nothing tells whether it was open before.
        """
        # 1. Before the change: answers, open connections, and connections that pass no link. A link
        # that is cut already cannot answer, so only the others are asked.
        new = {link: self._effective(link) for link in links}
        old = {link: self._links.state(link) for link in links}
        live = [
            link for link in links if link.port not in self._layout.unasked and self._runs(link)
        ]
        uncut = {link: old[link] for link in live if not is_cut(old[link])}
        before = self._ask_before(uncut, new)
        self._check_answered(before)
        mute = self._mute(before)
        live = [link for link in live if link not in mute]
        # Only a worse state needs somebody who can notice it. A heal that waited for a connection
        # would keep the cluster broken for up to `CONNECT_LIMIT_S` longer.
        worsens = any(state != HEALTHY for state in new.values())
        open_before = self._connections(live, CONNECT_LIMIT_S if worsens else 0)
        self._struck = self._struck or worsens
        past = self._direct() if worsens else {}
        direct = {link: count for link, count in past.items() if link in live}
        others = {link: count for link, count in past.items() if link not in links}
        # 2. The change. Everything below it measures.
        notes = [*self._links.apply(new), *evading(others), *answering_nobody(mute)]
        # A change for the better needs no process: an unused link that is healthy again harms none.
        if not live and worsens:
            return Receipt(False, self._unmeasured(links), unused=True)
        # Counted after the change, so bytes that an earlier fault dropped are no evidence for this
        # one.
        counted = self._links.bytes_passed(live)
        # 3. After the change: a link that is cut must stay silent for longer than any answer took
        # before, whichever link it came through. Three times, since answers vary; the floor is for
        # answers that took a fraction of a millisecond, which say nothing about the next one.
        slowest_s = max((answer.took_ms for answer in before.values()), default=0) / 1000
        now = {link: new[link] for link in live}
        silence_s = LEAST_SILENCE_S + 3 * slowest_s
        after = dict(self._ask(now, new, HEAL_LIMIT_S, silence_s))
        healed = {link: after[link] for link in live if not is_cut(new[link])}
        if mute := self._mute(healed):
            live = [link for link in live if link not in mute]
            notes += answering_nobody(mute)

        # Reads the byte counts each time that it is called: the second call is for links asked
        # again.
        def tried() -> Sequence[Trial]:
            vanished = self._vanished(live, counted, new)
            return [
                Trial(
                    link=link,
                    old=old[link],
                    new=new[link],
                    before=before.get(link),
                    after=after[link],
                    vanished={
                        stream: vanished[link, stream].dropped
                        for stream in (UPSTREAM, DOWNSTREAM)
                        if (link, stream) in vanished
                    },
                    open_before=open_before[link],
                )
                for link in live
            ]

        trials = tried()
        unseen = {trial.link: new[trial.link] for trial in trials if trial.unseen}
        if unseen:  # the answer may have come after the prober closed: then it is not counted
            after.update(self._ask(unseen, new, HEAL_LIMIT_S, LONGEST_WAIT_S))
            trials = tried()
        # 4. What toxiproxy lists, last: also a change by another program during the measurement
        # shows.
        differences = self._links.differences(links)
        return judge(trials, differences, notes, unasked=len(links) - len(live), direct=direct)

    def _unmeasured(self, links: Sequence[Link]) -> str:
        """Why the state of these links cannot be measured."""
        ports = {link.port for link in links}
        if ports <= self._layout.unasked:
            numbers = describe(str(port) for port in sorted(ports))
            return f"nodes listen on port {numbers} at some times only, so nothing was measured"
        pairs = {(link.source, link.target) for link in links}
        return f"no process runs at both ends of {_directions(pairs)}"

    def _check_answered(self, before: Mapping[Link, ProbeAnswer]) -> None:
        """Raises UsageError for a probe that does not fit: no node has answered it in this run."""
        if any(answer.came for answer in before.values()):
            self._unanswered = ""
        # If every link was cut before, or no process lives, nothing was asked: that is no sign of a
        # probe that does not fit.
        elif before and self._unanswered:
            raise UsageError(self._unanswered)

    @staticmethod
    def _mute(answers: Mapping[Link, ProbeAnswer]) -> Collection[Link]:
        """The links to second processes with a node's id that answer nobody. A cluster may refuse
        such a process for good, and it may answer nobody until it is registered: its link
        cannot be asked, like one to a slot without a process. If nothing answered at all, a probe
        that does not fit is likelier."""
        silent = [link for link, answer in answers.items() if not answer.came]
        if len(silent) == len(answers):
            return ()
        return [link for link in silent if is_second(link.target)]

    def _ask_before(
        self, uncut: Mapping[Link, LinkState], new: Mapping[Link, LinkState]
    ) -> Mapping[Link, ProbeAnswer]:
        """How the links answer before they are changed.

        The slowest answer decides how long a cut must stay silent, and leases run out meanwhile. So
        a node that had only stalled for a moment is asked again, and its next answer counts. Only a
        healthy link is asked again: the answer through a slow one takes long by the fault.
        """
        before = dict(self._ask(uncut, new, READY_LIMIT_S))
        # A node that is slow every time keeps its slow answer, and the cut its long silence. Else
        # the node's own slowness would pass for the cut.
        for _ in range(ASKED_AGAIN):
            slow = {
                link: uncut[link]
                for link, answer in before.items()
                if answer.came and answer.took_ms > QUICK_MS
                and is_cut(new[link]) and uncut[link] == HEALTHY
            }  # fmt: skip
            if not slow:
                break
            before.update(self._ask(slow, new, READY_LIMIT_S))
        return before

    def _ask(
        self,
        now: Mapping[Link, LinkState],
        new: Mapping[Link, LinkState],
        limit_s: float,
        silence_s: float = 0,
    ) -> Mapping[Link, ProbeAnswer]:
        """Probes links that are in the states `now`, with questions that show the states `new`.

        Links that are not cut are probed again until they answer, or the limit has passed.
        """
        answers: dict[Link, ProbeAnswer] = {}
        waiting = list(now)

        def answered() -> bool:
            asked = {}
            for link in waiting:
                # The size by the new state, in the question before the change as well: both answers
                # then carry the same number of bytes, and their difference is the fault's doing.
                size = bulk(new[link])
                patience_s = silence_s if is_cut(now[link]) else _patience_s(now[link], size)
                asked[link] = patience_s, size
            answers.update(self._prober.ask(asked))
            # A cut link is asked once only. Asked until it answers, it would be asked for the whole
            # limit.
            waiting[:] = [
                link for link in waiting if not answers[link].came and not is_cut(now[link])
            ]
            return not waiting

        self._wait(answered, limit_s, 0.02)
        return answers

    def _connections(self, links: Sequence[Link], limit_s: float) -> Mapping[Link, int]:
        """How many connections are open through each link. Waits for a first one, since after a
        restart a node may not have dialled yet."""
        seen: dict[Link, int] = {}

        def any_open() -> bool:
            seen.update(self._prober.open_connections(links))
            return any(seen.values()) or not seen

        self._wait(any_open, limit_s, 0.02)
        return seen

    def _vanished(
        self,
        links: Sequence[Link],
        counted: Mapping[tuple[Link, str], Bytes],
        new: Mapping[Link, LinkState],
    ) -> Mapping[tuple[Link, str], Bytes]:
        """The bytes received and not sent since `counted`; waits until every cut link shows
        some."""
        passed: dict[tuple[Link, str], Bytes] = {}

        def shown() -> bool:
            now = self._links.bytes_passed(links)
            passed.update({key: now[key] - counted[key] for key in now if key in counted})
            return not passed or all(
                # Of a link that is cut both ways, only the question can vanish: it never arrives,
                # so there is no answer that could vanish downstream.
                passed[link, UPSTREAM if new[link].cut_upstream else DOWNSTREAM].dropped > 0
                for link in links
                if is_cut(new[link])
            )

        # toxiproxy adds a connection's bytes to its counts when the connection closes, a moment
        # after the prober has given up. Without a cut, one look is enough.
        limit_s = COUNT_LIMIT_S if any(is_cut(new[link]) for link in links) else 0
        self._wait(shown, limit_s, 0.01)
        return passed


def _patience_s(state: LinkState, size: int) -> float:
    """How long to wait for an answer through a link in this state."""
    # Twice, since the question and the answer are both delayed, and both may have to pass at the
    # rate.
    delay_s = 2 * (state.latency_ms + state.jitter_ms) / 1000
    if state.rate_kb:
        delay_s += 2 * size / 1000 / state.rate_kb
    return min(LONGEST_WAIT_S, ANSWER_LIMIT_S + delay_s)


def _directions(pairs: Iterable[tuple[str, str]]) -> str:
    return describe(f"{a} -> {b}" for a, b in sorted(pairs))
