"""The hooks by which Fencepost finds this plugin; pyproject.toml names this module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from fencepost import Clause, Rule, System, Workload, hookimpl
from fencepost_acme.events import KINDS
from fencepost_acme.observer import OBSERVER, ServerObserved
from fencepost_acme.rules import CLAUSES, RULES
from fencepost_acme.system import Acme
from fencepost_acme.workload import WORKLOADS


@hookimpl
def fencepost_event_kinds() -> Sequence[type[Struct]]:
    """The event kinds of servers, clients and the observer."""
    return (*KINDS, ServerObserved)


@hookimpl
def fencepost_systems() -> Sequence[System]:
    """`acme/servers`."""
    return (Acme(),)


@hookimpl
def fencepost_workloads() -> Mapping[str, Workload]:
    """The clients, the facade by which tests start them, and the observer."""
    return {**WORKLOADS, OBSERVER: Workload(("-m", "fencepost_acme.observer"))}


@hookimpl
def fencepost_clauses() -> Sequence[Clause]:
    """The promises of acme."""
    return CLAUSES


@hookimpl
def fencepost_rules() -> Sequence[Rule[Any]]:
    """The rules that judge the promises."""
    return RULES
