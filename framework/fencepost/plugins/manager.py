"""Loads plugins and says what they offer. A broken plugin is named and disabled; the others load.

A plugin is a module named in the entry-point group `fencepost` (see `fencepost.plugins.hookspecs`).
Each hook is called once, and its result is checked here, so that no other module meets a bad value.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar, final

import pluggy
from msgspec import Struct

from fencepost.events import Codec, kind_name, nested_fields
from fencepost.judging.folder import Promises
from fencepost.judging.known_findings import KnownFinding
from fencepost.judging.rules import Applicability, Clause, Rule
from fencepost.model.errors import EnvironmentFailed, FencepostError, UsageError, no_such
from fencepost.model.faults.fault import Fault, FaultFactory, arguments_of
from fencepost.model.runtime import describe
from fencepost.model.system.attachment import ANY, Attached
from fencepost.model.system.capabilities import StatesBounds, System, Versioned
from fencepost.plugins import hookspecs
from fencepost.plugins.capabilities import check_system, takes
from fencepost.plugins.reports import ANY_ENGINE, Engine, ReportRequest
from fencepost.workloads.workers import Workload

GROUP = "fencepost"
"""The group of the entry points of plugins."""
SYSTEMS = "fencepost.systems"
"""The group of those of the systems that come with Fencepost."""
T = TypeVar("T")


@final
class PluginWarning(UserWarning):
    """A plugin was disabled or one of its hooks failed; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What one plugin offers, each value checked."""

    plugin: str
    event_kinds: tuple[type[Struct], ...] = ()
    systems: Mapping[str, System] = field(default_factory=dict)
    faults: Mapping[str, FaultFactory] = field(default_factory=dict)
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    clauses: Mapping[str, Clause] = field(default_factory=dict)
    rules: tuple[Rule[Any], ...] = ()
    known_findings: Mapping[str, KnownFinding] = field(default_factory=dict)
    applicability: Mapping[str, Applicability] = field(default_factory=dict)
    """`clause on plane` -> how it applies there."""


@final
class Plugins:
    """What all loaded plugins offer together. `load` makes it; it does not change afterwards."""

    def __init__(
        self, manager: pluggy.PluginManager, offers: Sequence[Offer], broken: Mapping[str, str]
    ) -> None:
        self._manager = manager
        self.offers = tuple(offers)
        self.broken = dict(broken)
        """plugin -> why it was disabled."""
        self.event_kinds = tuple(kind for offer in offers for kind in offer.event_kinds)
        self.systems = _joined("system", ((o.plugin, o.systems) for o in offers))
        self.faults = _joined("fault", ((o.plugin, o.faults) for o in offers))
        self.workloads = _joined("workload", ((o.plugin, o.workloads) for o in offers))
        self.clauses = _bound(
            _marked(
                _joined("clause", ((o.plugin, o.clauses) for o in offers)),
                _joined("applicability", ((o.plugin, o.applicability) for o in offers)),
            ),
            self.systems.values(),
        )
        self.rules = tuple(rule for offer in offers for rule in offer.rules)
        findings = _joined("known finding", ((o.plugin, o.known_findings) for o in offers))
        self.known_findings = tuple(findings.values())
        # For its error alone: two plugins with one tag would read each other's events.
        _joined("event kind", ((o.plugin, _kinds_by_name(o.event_kinds)) for o in offers))

    @property
    def promises(self) -> Promises:
        """The promises by which runs are judged, with these plugins."""
        planes = {name: system.plane for name, system in self.systems.items()}
        return Promises(
            self.rules, self.clauses, self.event_kinds, planes, self.known_findings
        )  # fmt: skip

    def system(self, name: str) -> System:
        """The system of that name, `name@version` too; raises UsageError with the nearest one.
        `attached@FILE` is the system of attached clusters, whatever its name."""
        family, _, version = name.partition("@")
        if family == ANY:
            family = self._attachable()
        system = self._get("system", family, self.systems)
        if not version:
            return system
        if not isinstance(system, Versioned):
            raise UsageError(f"{family} comes in one version: leave out '@{version}'")
        return system.at(version)

    def _attachable(self) -> str:
        """The name of the only system whose clusters can be attached to; raises UsageError."""
        found = [name for name, one in self.systems.items() if isinstance(one, Attached)]
        if len(found) != 1:
            raise UsageError(
                f"systems whose clusters can be attached to: {describe(found) or 'none'}; name "
                "the one that is meant"
            )
        return found[0]

    def clause(self, name: str, plane: str | None = None) -> Clause:
        """The clause of that id, or of one that it has replaced; raises UsageError with the nearest
        right one: one of that plane, if it is given, or of the same family."""
        right = self.replaced.get(name, name)
        near = self.clauses
        if plane is not None and right not in near:
            bound = {one for one, clause in near.items() if clause.binds(plane)}
            near = {one: near[one] for one in _related(right, near, bound)}
        return self._get("clause", right, self.clauses, near)

    @cached_property
    def replaced(self) -> Mapping[str, str]:
        """The ids of clauses that others have replaced, each with the id of that one."""
        marks = (mark for one in self.clauses.values() for mark in one.applicability)
        return {mark.formerly: mark.clause for mark in marks if mark.formerly}

    def clauses_of(self, package: str) -> Sequence[Clause]:
        """The clauses that the plugins of a package offer."""
        return [
            self.clauses[name]
            for offer in self.offers
            if _package(self._manager.get_plugin(offer.plugin)) == package
            for name in offer.clauses
        ]

    def workload(self, name: str) -> Workload:
        """The workload of that name; raises UsageError as `system` does."""
        return self._get("workload", name, self.workloads)

    def fault(self, name: str, /, *args: object, **arguments: object) -> Fault:
        """A fault of that name; raises UsageError for an unknown name or arguments it refuses."""
        factory = self.fault_factory(name)
        try:
            return factory(*args, **arguments)
        except TypeError as error:
            takes = arguments_of(factory) or "no argument"
            raise UsageError(
                f"the fault '{name}' was given wrong arguments: {error}; it takes: {takes}"
            ) from error

    def fault_factory(self, name: str) -> FaultFactory:
        """What makes the faults of that name; raises UsageError as `system` does."""
        return self._get("fault", name, self.faults)

    def run_judged(self, run_folder: Path) -> None:
        """Calls `fencepost_run_judged` of every plugin; a warning names a plugin that raises."""

        def make_report() -> Path:
            return Path(self.report(ReportRequest.of([run_folder], run_folder / "report")))

        # The run is judged and its verdicts are written: no plugin's reporter may turn that into a
        # failure.
        for impl in self._manager.hook.fencepost_run_judged.get_hookimpls():
            try:
                _call(impl, run_folder=run_folder, make_report=make_report)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                _warn(impl.plugin_name, f"failed on {run_folder.name}: {_why(error)}")

    def check_report(self, runs: int, engine: Engine = ANY_ENGINE) -> None:
        """Raises EnvironmentFailed when a report over that many runs cannot be made here."""
        impls = self._manager.hook.fencepost_report_lacks.get_hookimpls()
        lacks = [said for said in (_call(impl, runs=runs, engine=engine) for impl in impls) if said]
        if lacks:
            raise EnvironmentFailed("; ".join(lacks))

    def report(self, request: ReportRequest) -> str:
        """The page of the first plugin that makes one; raises UsageError when none does."""
        for impl in self._manager.hook.fencepost_report.get_hookimpls():
            page = _call(impl, request=request)
            if page is not None:
                return str(page)
        raise UsageError("no loaded plugin makes reports")

    def _get(
        self, what: str, name: str, known: Mapping[str, T], near: Iterable[str] | None = None
    ) -> T:
        """The value of that name. The error begins with the disabled plugins, since one of them may
        offer it; it offers a name of `near`, by default of all that are known."""
        if name in known:
            return known[name]
        apart = [f"the plugin '{p}' is disabled: {why}; " for p, why in self.broken.items()]
        unknown = no_such(what, name, known if near is None else near)
        raise UsageError("".join([*apart, str(unknown)]))


def load(extra: Mapping[str, object] | None = None, *, system: str = "") -> Plugins:
    """Loads every installed plugin, then `extra` (name -> module) ones, in order of their names.

    Those of `SYSTEMS` are left out if `system` is named, another plugin brings it, and none builds
    on theirs: a run of that system needs none of their events, clauses and packages.

    A plugin that cannot be imported, names an unknown hook, offers a bad value, or refers to a
    clause or a workload that no plugin offers is disabled with a `PluginWarning`; the others load.

    Raises UsageError when two plugins give one name, with both named, since only the user knows
    which one is meant. If one were chosen, a foreign plugin could replace a fault or a promise. If
    both were disabled, it could remove one, unnoticed by a run that asks for neither.
    """
    found, own = entry_points(group=GROUP), entry_points(group=SYSTEMS)
    if system:
        with warnings.catch_warnings():  # what is loaded again warns again
            warnings.simplefilter("ignore", PluginWarning)
            others = load_from(found, extra or {})
        # Of the packages that bring Fencepost's systems, those that no other plugin is in. If a
        # plugin has imported one of them, it builds on it, and everything is loaded.
        packages = {one.module.partition(".")[0] for one in own} - {
            one.module.partition(".")[0] for one in found
        }
        if system.partition("@")[0] in others.systems and packages.isdisjoint(sys.modules):
            return load_from(found, extra or {})
    return load_from([*found, *own], extra or {})


def load_from(found: Iterable[EntryPoint], extra: Mapping[str, object]) -> Plugins:
    """As `load`, from the given entry points."""
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    offers: list[Offer] = []
    broken: dict[str, str] = {}
    for name, several in _sources(found, extra).items():
        try:
            # In this order, so that the error is the first thing that is wrong: two plugins of one
            # name; an import; a hook that does not exist; a value that does not fit.
            (module,) = _alone(several).values()
            manager.register(module(), name)
            manager.check_pending()
            offers.append(_ask(manager, name))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # A plugin's own code may raise anything, and the other plugins must still load: a
            # module that reads the command line calls sys.exit.
            if manager.has_plugin(name):
                manager.unregister(name=name)
            broken[name] = _why(error)
            _warn(name, f"is disabled: {broken[name]}")
    while misfits := _misfits(offers):  # what a disabled plugin offers may be missing in another
        for name, why in misfits.items():
            manager.unregister(name=name)
            broken[name] = why
            _warn(name, f"is disabled: {why}")
        offers = [offer for offer in offers if offer.plugin not in misfits]
    plugins = Plugins(manager, offers, broken)
    for name, what in _mistyped(offers, plugins.systems.values()):
        _warn(name, what)
    return plugins


def _misfits(offers: Sequence[Offer]) -> Mapping[str, str]:
    """plugin -> why its offer does not fit to those of all plugins."""
    clauses = {name for offer in offers for name in offer.clauses}
    workloads = {name for offer in offers for name in offer.workloads}
    systems = {name for offer in offers for name in offer.systems}
    # Against the offers of all plugins that are still there: a plugin may refer to what another one
    # offers.
    found = {offer.plugin: _misfit(offer, clauses, workloads, systems) for offer in offers}
    return {plugin: why for plugin, why in found.items() if why}


def _misfit(
    offer: Offer, clauses: Collection[str], workloads: Collection[str], systems: Collection[str]
) -> str:
    """The first thing that this offer refers to and that no plugin offers, with the remedy."""
    judged = ((rule.clause, f"the rule {type(rule).__name__} judges") for rule in offer.rules)
    marked = ((m.clause, "an Applicability is about") for m in offer.applicability.values())
    # A finding that explains nothing would leave what is known new, without a word.
    findings = offer.known_findings.values()
    known = ((one, f"the finding {it.id} explains") for it in findings for one in it.clauses)
    for clause, what in (*judged, *marked, *known):
        if clause not in clauses:
            near = no_such("clause", clause, _related(clause, clauses, offer.clauses))
            return (
                f"{what} a clause that no plugin offers: offer it by the hook fencepost_clauses, "
                f"or correct its name ({near})"
            )
    for finding in findings:
        if finding.system not in systems:
            return (
                f"the finding {finding.id} is of a system that no plugin offers: correct its "
                f"`system` ({no_such('system', finding.system, systems)})"
            )
    for system in offer.systems.values():
        if system.workload not in workloads:
            return (
                f"the system {system.name} has a workload that no plugin offers: offer it by the "
                "hook fencepost_workloads, or correct `workload` of the system "
                f"({no_such('workload', system.workload, workloads)})"
            )
    return ""


def _related(clause: str, among: Iterable[str], own: Collection[str]) -> Sequence[str]:
    """The clauses that the wrong name of one may stand for: `own` ones, and those of its family.
    SENT-2 is no slip of the pen for ETCD-02, of another system, however near the letters are."""
    family = clause.rpartition("-")[0]
    return [one for one in among if one in own or one.rpartition("-")[0] == family]


def _sources(
    found: Iterable[EntryPoint], extra: Mapping[str, object]
) -> Mapping[str, Mapping[str, Callable[[], object]]]:
    """plugin -> where it is from -> the function that loads it, in the order of the plugins' names.

    Entry points that name one module are one plugin: an installation may be found twice.
    """
    sources: dict[str, dict[str, Callable[[], object]]] = {}
    for entry in found:
        sources.setdefault(entry.name, {})[entry.value] = entry.load
    for name in extra:
        sources.setdefault(name, {})["this program"] = partial(extra.__getitem__, name)
    return dict(sorted(sources.items()))


def _alone(several: Mapping[str, Callable[[], object]]) -> Mapping[str, Callable[[], object]]:
    """The sources of one plugin's name; raises UsageError unless there is one."""
    if len(several) > 1:
        raise UsageError(
            f"{describe(several)} have this name: give each a name of its own in the entry-point "
            f"group {GROUP}, or uninstall one"
        )
    return several


def _ask(manager: pluggy.PluginManager, name: str) -> Offer:
    """Calls every hook of one plugin; raises UsageError for a result that does not fit the hook."""
    answers: dict[str, Any] = {}
    plugin = manager.get_plugin(name)
    for caller in manager.get_hookcallers(plugin) or ():
        asked = caller.name.removeprefix("fencepost_")
        if asked in _CHECKS:
            for impl in caller.get_hookimpls():
                if impl.plugin is plugin:
                    answers[asked] = _CHECKS[asked](_call(impl))
    return Offer(name, **answers)


def _call(impl: pluggy.HookImpl, **arguments: object) -> Any:
    """Calls one implementation with as many of the hook's arguments as it takes.

    pluggy's own call is not used: it calls no further implementation once one has raised.
    """
    return impl.function(**{name: arguments[name] for name in impl.argnames})


def _event_kinds(answer: Any) -> tuple[type[Struct], ...]:
    kinds = tuple(answer)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Struct)):
            raise UsageError(f"the event kind {kind!r} is no class: make it a msgspec Struct")
        try:
            name = kind_name(kind)
        except TypeError as untagged:
            raise UsageError(str(untagged)) from None
        if not kind.__struct_config__.frozen:
            raise UsageError(f"the event kind {name} can be changed: declare it with frozen=True")
        if nested := nested_fields(kind):
            raise UsageError(
                f"the event kind {name} is not flat: make its field {nested[0]} text, a number, a "
                "truth value, or a tuple of one of them"
            )
    try:
        Codec(kinds)
    except ValueError as refused:
        raise UsageError(str(refused)) from None
    return kinds


def _kinds_by_name(kinds: Iterable[type[Struct]]) -> dict[str, type[Struct]]:
    return {kind_name(kind): kind for kind in kinds}


def _systems(answer: Any) -> dict[str, System]:
    for system in answer:
        check_system(system)
    return _by_name("system", [(system.name, system) for system in answer])


def _faults(answer: Any) -> dict[str, FaultFactory]:
    for name, factory in answer.items():
        if not (isinstance(name, str) and name.isidentifier() and callable(factory)):
            raise UsageError(f"the fault {name!r} needs a name usable in Python, and a callable")
    return dict(answer)


def _workloads(answer: Any) -> dict[str, Workload]:
    for name, workload in answer.items():
        if not isinstance(workload, Workload):
            raise UsageError(f"the workload {name!r} is no Workload, but {workload!r}")
        if isinstance(workload.argv, str) or not all(isinstance(w, str) for w in workload.argv):
            raise UsageError(f"the argv of the workload {name!r} is not a tuple of words")
    return dict(answer)


def _clauses(answer: Any) -> dict[str, Clause]:
    for clause in answer:
        if not isinstance(clause, Clause):
            raise UsageError(f"{clause!r} is no Clause")
    return _by_name("clause", [(clause.id, clause) for clause in answer])


def _rules(answer: Any) -> tuple[Rule[Any], ...]:
    for rule in answer:
        if not isinstance(rule, Rule):
            raise UsageError(
                f"the rule {type(rule).__name__} is no fencepost.Rule: derive it from that class, "
                "and mark each method that handles a kind of event with @on(kind)"
            )
        if not isinstance(rule.clause, str):
            raise UsageError(f"the clause of the rule {rule!r} is no text: make it a clause's id")
        if not rule.applied:
            raise UsageError(
                f"the rule {type(rule).__name__} handles no event: mark a method with @on(kind)"
            )
        if rule.keeper is not None and not takes(rule.keeper, 2):
            raise UsageError(
                f"the keeper of the rule {type(rule).__name__} does not take (rules, shared): "
                "it is made of its rules and of what is shared about the whole run"
            )
    return tuple(answer)


def _known_findings(answer: Any) -> dict[str, KnownFinding]:
    for one in answer:
        if not isinstance(one, KnownFinding):
            raise UsageError(f"{one!r} is no KnownFinding")
    return _by_name("known finding", [(one.id, one) for one in answer])


def _applicability(answer: Any) -> dict[str, Applicability]:
    for mark in answer:
        if not isinstance(mark, Applicability):
            raise UsageError(f"{mark!r} is no Applicability")
        if not isinstance(mark.clause, str):
            raise UsageError(f"the clause of {mark!r} is no text: make it a clause's id")
    return _by_name("applicability", [(f"{mark.clause} on {mark.plane}", mark) for mark in answer])


_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "event_kinds": _event_kinds,
    "systems": _systems,
    "faults": _faults,
    "workloads": _workloads,
    "clauses": _clauses,
    "rules": _rules,
    "known_findings": _known_findings,
    "applicability": _applicability,
}


def _by_name(what: str, pairs: Sequence[tuple[str, T]]) -> dict[str, T]:
    named = dict(pairs)
    if len(named) != len(pairs):
        raise UsageError(f"it gives one {what} name twice: rename one of the two")
    return named


def _joined(what: str, offers: Iterable[tuple[str, Mapping[str, T]]]) -> Mapping[str, T]:
    owners: dict[str, str] = {}
    joined: dict[str, T] = {}
    for plugin, offer in offers:
        for name, value in offer.items():
            if name in owners:
                raise UsageError(
                    f"the {what} '{name}' is given by two plugins, '{owners[name]}' and "
                    f"'{plugin}': rename it in one of them, or uninstall one"
                )
            owners[name], joined[name] = plugin, value
    return joined


def _marked(
    clauses: Mapping[str, Clause], found: Mapping[str, Applicability]
) -> Mapping[str, Clause]:
    """The clauses with their applicability."""
    of: dict[str, list[Applicability]] = {}
    for mark in found.values():
        of.setdefault(mark.clause, []).append(mark)
    return {
        name: replace(clause, applicability=tuple(of.get(name, ())))
        for name, clause in clauses.items()
    }


def _bound(clauses: Mapping[str, Clause], systems: Iterable[System]) -> Mapping[str, Clause]:
    """The clauses; those of a vocabulary with the planes of the systems that record its events."""
    planes: dict[tuple[str, bool], set[str]] = {}
    for system in systems:
        for fold in system.folds:
            for bounded in {False, isinstance(system, StatesBounds)}:
                vocabulary = fold.__module__.partition(".")[0]
                planes.setdefault((vocabulary, bounded), set()).add(system.plane)
    return {
        name: replace(
            clause,
            planes=tuple(sorted(planes.get((clause.vocabulary, clause.bounded), ()))) or NO_PLANE,
        )
        if clause.vocabulary and not clause.planes
        else clause
        for name, clause in clauses.items()
    }


def _mistyped(offers: Iterable[Offer], systems: Iterable[System]) -> Iterable[tuple[str, str]]:
    """The plugins with a clause of a plane that no loaded system has: such a clause binds nothing,
    and nothing would say so. A plugin without a system may be for one that is not here, unless a
    plane has nearly that name."""
    planes = {system.plane for system in systems}
    for offer in offers:
        for clause in offer.clauses.values():
            for plane in set(clause.planes) - planes:
                near = get_close_matches(plane, planes, n=1, cutoff=0.8)
                if near or offer.systems:
                    hint = f"; did you mean '{near[0]}'?" if near else ""
                    yield (
                        offer.plugin,
                        f"has the clause '{clause.id}' of the plane '{plane}', which no system "
                        f"has{hint}",
                    )


NO_PLANE = ("",)
"""The planes of a clause about events that no loaded system records."""


def _package(plugin: object) -> str:
    """The package of the module that a plugin is."""
    return str(getattr(plugin, "__name__", "")).partition(".")[0]


def _why(error: BaseException) -> str:
    """Why a plugin failed. An error of Fencepost is a sentence; any other exception is shown with
    its type."""
    return str(error) if isinstance(error, FencepostError) else f"{type(error).__name__}: {error}"


def _warn(plugin: str, what: str) -> None:
    warnings.warn(f"the plugin '{plugin}' {what}", PluginWarning, stacklevel=3)
