"""The backend of an attached cluster: the third beside this host and the container engine.

The difference is the owner. Nodes, disks and links are the user's: nodes are adopted
(`launching`), links are proxies that are there (`fencepost.injection.attached_links`), disks are
left alone, and whatever a run has done to any of them is undone by the guard (`guard`). What the
cluster had before is compared with what it has afterwards.

See docs/decisions/53-attached.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import final

import msgspec

from fencepost.history.files import write_whole
from fencepost.history.run_folder import RunFolder
from fencepost.injection.attached_links import AttachedLinks, changed
from fencepost.injection.attached_server import ShownProxy, TheirToxiproxy
from fencepost.injection.probes import TCP, HostProber, Prober, count_accepted
from fencepost.model.clock import poll
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.runtime import Process, describe
from fencepost.model.system.attachment import (
    Attached,
    Attachment,
    Survey,
    check_consent,
    seen,
)
from fencepost.model.system.capabilities import System
from fencepost.model.system.probe import Probe
from fencepost.model.system.topology import Layout, Link, Slot
from fencepost.runtimes.attached.guard import Duties
from fencepost.runtimes.attached.guarding import Guarding
from fencepost.runtimes.attached.launching import AttachedLaunching
from fencepost.runtimes.attached.nodes import command_engine
from fencepost.runtimes.process.backend import Backend, BackendKind, Home
from fencepost.supervision.addresses import Claim, claim
from fencepost.supervision.launcher import Launcher

FILE = "attached.json"
"""In the run's folder: what was there before and after."""
_NAMED = 5
AFTER_S = 60.0
"""How long an attached cluster may take, once all is undone, to be as it was."""
_AGAIN_S = 0.5


def attached_backend(system: Attached) -> BackendKind:
    """The cluster that a system is attached to."""

    def opened(layout: Layout, folder: RunFolder) -> Backend:
        return AttachedBackend(system, layout, folder)

    return BackendKind(
        "attached", opened, limits=system.attachment(), check=check_fits, restarts=False
    )


def check_fits(layout: Layout) -> None:
    """Raises UsageError for programs of the user's: no proxy of the file is theirs."""
    if layout.instances():
        raise UsageError(
            "an attached cluster runs no app: its file names no proxies for one. Start the program "
            "yourself, as you do without Fencepost"
        )


@final
class AttachedAddresses:
    """See `fencepost.runtimes.process.backend.Addressing`: by the file."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment

    def own(self, slot: Slot) -> str:
        """The node's own listener."""
        return seen(self._attachment, "", slot.name)[0]

    def seen(self, source: Slot, target: Slot) -> str:
        """The proxy, or the node itself if there is none."""
        return seen(self._attachment, source.name, target.name)[0]

    def outside(self, slot: Slot) -> str:
        """The node's own listener."""
        return self.own(slot)


class State(msgspec.Struct, frozen=True):
    """What an attached cluster has, before or after a run."""

    survey: Survey
    proxies: Mapping[str, ShownProxy]


@final
class AttachedBackend:
    """See `Backend`. Nothing was touched if this raises."""

    def __init__(self, system: Attached, layout: Layout, folder: RunFolder) -> None:
        self._system, self._folder = system, folder
        self._attachment = attachment = system.attachment()
        check_consent(attachment)
        self.addresses = AttachedAddresses(attachment)
        toxiproxy = attachment.toxiproxy
        self._server = TheirToxiproxy(toxiproxy.url) if toxiproxy else None
        self.links = AttachedLinks(attachment, layout, self._server)
        self._before = self._state()
        check_survey(self._before.survey)
        self.left: Sequence[str] = ()
        """What could not be undone, or is gone, a sentence each; once it is closed."""
        self._finish = ExitStack()
        try:
            self._open(folder)
        except BaseException:
            self._finish.close()
            raise

    def _open(self, folder: RunFolder) -> None:
        # The last thing that happens: it compares what is left when everything has been undone.
        self._finish.callback(self._compare)
        duties = Duties(self._attachment, tuple(self._system.tidying()))
        self._guard = Guarding(duties)
        self._finish.callback(self._guard.heal)
        # A number for the clients' own use; nodes have addresses of their own.
        claimed: Claim = claim()
        self._finish.callback(claimed.close)
        launcher = Launcher(folder.log_of("supervisor"), [claimed.fileno()])
        self._finish.callback(launcher.close)
        self.launcher = AttachedLaunching(self._attachment, launcher, self._guard)
        # Before the guard heals: clients that still write would make again what it has removed.
        self._finish.callback(self.launcher.close)

    def prober(
        self, system: System, living: Callable[[str], Process | None], probe: Probe | None = None
    ) -> Prober:
        """See `Backend.prober`. Which connections pass no link cannot be seen."""

        def none(links: Sequence[Link]) -> Mapping[Link, int]:
            return {}

        return HostProber(system, self.links.end, none, probe, self._accepted)

    def home(self, slot: Slot, process: str) -> Home:
        """See `Backend.home`."""
        folder = self._folder
        return Home(folder.data_of(slot.name), folder.work_of(process), folder.events_of(process))

    def copy_disk(self, source: Slot | None, target: Slot) -> None:
        """Raises UsageError: the disks are the user's."""
        raise UsageError(f"the disk of {target.name} is not Fencepost's, and is left alone")

    def damage_disk(self, target: Slot, files: str, last_bytes: int) -> Sequence[str]:
        """Raises UsageError: the disks are the user's."""
        raise UsageError(f"the disk of {target.name} is not Fencepost's, and is left alone")

    def close(self) -> None:
        """See `Backend.close`: heals everything, and compares the cluster with what it was."""
        self._finish.close()

    def _accepted(self, links: Sequence[Link]) -> Mapping[Link, int]:
        """The connections that the user's toxiproxy has accepted for each link."""
        toxiproxy = self._attachment.toxiproxy
        if not links or toxiproxy is None:
            return {}
        where = "self"
        if toxiproxy.container:
            form = "{{.State.Pid}}"
            engine = self._attachment.engine
            where = command_engine(engine, "inspect", "--format", form, toxiproxy.container)
        ports = {link: self.links.accepted_at(link) for link in links}
        found = dict.fromkeys(links, 0)
        # A proxy that listens on every address accepts by IPv6, also from IPv4.
        for file in (TCP, f"{TCP}6"):
            try:
                shown = Path("/proc", where, file).read_text()
            except OSError:
                continue
            counts = count_accepted(ports.values(), shown)
            found = {link: found[link] + counts[ports[link]] for link in links}
        return found

    def _state(self) -> State:
        proxies = {} if self._server is None else self._server.proxies()
        theirs = {name: one.theirs for name, one in proxies.items()}
        return State(self._system.surveyed(), theirs)

    def _compare(self) -> None:
        """Writes down what was there before and after, and notes what is not as it was."""
        left = [one.failed for one in self._guard.reports if one.failed]
        after: State | None = None
        differs: Sequence[str] = ()

        def same() -> bool:
            nonlocal after, differs
            try:
                after = self._state()
            except EnvironmentFailed as silent:
                differs = [f"what it has now is not known: {silent}"]
            else:
                differs = differences(self._before.survey, after.survey)
            return not differs

        # A node that the guard has started again needs its time.
        poll(same, AFTER_S, _AGAIN_S)
        left += differs
        left += changes(self._before.proxies, after.proxies) if after else ()
        self.left = tuple(left)
        kept = {
            "before": self._before,
            "after": after,
            "appeared": appeared(self._before, after),
            "healed": [one.healed for one in self._guard.reports if one.healed],
            "left": left,
        }
        write_whole(self._folder.path / FILE, msgspec.json.format(msgspec.json.encode(kept)))


def check_survey(survey: Survey) -> None:
    """Raises EnvironmentFailed for a cluster that was broken before, or has something of ours."""
    if survey.wrong:
        raise EnvironmentFailed(f"the cluster was broken before: {'; '.join(survey.wrong)}")
    if survey.ours:
        raise EnvironmentFailed(
            f"the cluster has {describe(survey.ours[:_NAMED])} already: another run is attached to "
            "it, or has left this; remove it if none is"
        )


def appeared(before: State, after: State | None) -> Sequence[str]:
    """What is there that was not. It may be somebody's by now, and is left."""
    return sorted(set(after.survey.has) - set(before.survey.has)) if after else ()


def differences(before: Survey, after: Survey) -> Sequence[str]:
    """What is not as it was, a sentence each; what others have added is theirs, and no
    difference."""
    gone = [f"{one} is gone" for one in sorted(set(before.has) - set(after.has))]
    left = [f"{one} is left" for one in after.ours]
    return [*gone, *left, *(f"wrong afterwards: {one}" for one in after.wrong)]


def changes(before: Mapping[str, ShownProxy], after: Mapping[str, ShownProxy]) -> Sequence[str]:
    """The proxies that others have changed, a sentence each."""
    said = {name: changed(proxy, after.get(name)) for name, proxy in before.items()}
    return [f"{name}: {one}" for name, one in said.items() if one]
