"""Every hook a plugin may implement; the docstring is the contract.

A plugin is a module, named in the entry-point group `fencepost`, whose functions marked with
`fencepost.hookimpl` have these names. All hooks but the last three are called once, when plugins
are loaded. They take no arguments and must not start a process. If two plugins give one name,
loading fails and names both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pluggy
from msgspec import Struct

from fencepost.judging.known_findings import KnownFinding
from fencepost.judging.rules import Applicability, Clause, Rule
from fencepost.model.faults.fault import FaultFactory
from fencepost.model.system.capabilities import System
from fencepost.plugins.reports import Engine, ReportRequest
from fencepost.workloads.workers import Workload

hookspec = pluggy.HookspecMarker("fencepost")
hookimpl = pluggy.HookimplMarker("fencepost")
"""The decorator of a function that implements a hook of Fencepost's."""


@hookspec
def fencepost_event_kinds() -> Sequence[type[Struct]]:
    """Event kinds of the plugin's own: frozen msgspec Structs tagged `plugin.name`.

    They are flat, since each field is a column of the report's table: text (a `Literal` of words is
    text), a number, a truth value, or a tuple of one of these.
    """
    raise NotImplementedError


@hookspec
def fencepost_systems() -> Sequence[System]:
    """Systems under test, each with its name (`family/plane`) and capabilities."""
    raise NotImplementedError


@hookspec
def fencepost_faults() -> Mapping[str, FaultFactory]:
    """Faults by name: each factory takes keyword arguments of plain data and returns a Fault."""
    raise NotImplementedError


@hookspec
def fencepost_workloads() -> Mapping[str, Workload]:
    """Kinds of clients by name, each with the argv (after the Python interpreter) of a worker.

    A worker is a process of its own, in a slot like any node. The last element of its argv is the
    path of its configuration, one JSON object: `run`, `process`, `events` (the path of the file it
    appends its events to), `bootstrap` (a list of `address:port`), `hosts` (slot name -> address at
    which the clients reach it), `client_port`, and `options` (its own, from the ClientSpec). It
    reads commands, one JSON object a line, from standard input until that ends. The end of its
    input, or SIGTERM, asks it to finish what it has begun and to end. `run_worker` is the frame of
    such a program.
    """
    raise NotImplementedError


@hookspec
def fencepost_clauses() -> Sequence[Clause]:
    """The promises the plugin's rules judge."""
    raise NotImplementedError


@hookspec
def fencepost_applicability() -> Sequence[Applicability]:
    """How clauses, of any plugin, apply on planes that their documents do not mention."""
    raise NotImplementedError


@hookspec
def fencepost_rules() -> Sequence[Rule[object]]:
    """Rules, each judging one clause that some loaded plugin declares."""
    raise NotImplementedError


@hookspec
def fencepost_known_findings() -> Sequence[KnownFinding]:
    """Known violations of the plugin's systems; they do not fail a run."""
    raise NotImplementedError


@hookspec
def fencepost_run_judged(run_folder: Path, make_report: Callable[[], Path]) -> None:
    """Called after the verdicts of a run were written into its folder; for reports and uploads.

    `make_report` makes the report of this run alone, below `report` in its folder, and returns its
    page; that takes a moment. Every implementation is called. If one raises, a warning
    names it, and the others still run.
    """
    raise NotImplementedError


@hookspec
def fencepost_report_lacks(runs: int, engine: Engine) -> str:
    """What this machine lacks for a report over that many runs by this engine, in one sentence;
    empty if nothing.

    It is called before a command that ends with a report begins its work.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def fencepost_report(request: ReportRequest) -> str | None:
    """Correlates any number of runs into tables and pages below `request.out`; returns the path or
    URI of the first page.

    The first implementation that returns one is used.
    """
    raise NotImplementedError
