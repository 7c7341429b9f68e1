"""`fencepost plugins`: what the loaded plugins offer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from fencepost.commands.options import Json
from fencepost.commands.terminal import load_plugins, output, print_json, show
from fencepost.judging.rules import Clause
from fencepost.model.errors import EXIT_CLEAN, EXIT_ENVIRONMENT, no_such
from fencepost.model.faults.fault import FaultFactory, arguments_of
from fencepost.model.text import docstring
from fencepost.plugins.manager import Offer

_TYPED = ("systems", "faults")
"""What a user types, and so is named; of the rest a list says how many there are."""


def plugins(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A plugin, with all that it offers; a fault, with its arguments; or a clause."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Name all that each offers.")] = False,
    json: Json = False,
) -> None:
    """Lists what the loaded plugins offer, and those that were disabled (exit code 4)."""
    loaded = load_plugins()
    chosen = {one.plugin: one for one in loaded.offers if name in (None, one.plugin)}
    if name is not None and not {name} & {
        *chosen,
        *loaded.faults,
        *loaded.clauses,
        *loaded.broken,
    }:
        names = [*(one.plugin for one in loaded.offers), *loaded.faults, *loaded.clauses]
        raise no_such("plugin, fault or clause", name, names)
    broken = {p: why for p, why in loaded.broken.items() if name in (None, p)}
    code = EXIT_ENVIRONMENT if broken else EXIT_CLEAN
    of_plugins = {f: made for one in chosen.values() for f, made in one.faults.items()}
    asked = of_plugins or {f: made for f, made in loaded.faults.items() if f == name}
    faults = {f: _described(made) for f, made in sorted(asked.items())}
    promised = {c: one for of in chosen.values() for c, one in of.clauses.items()}
    if name is not None and name in loaded.clauses:
        promised[name] = loaded.clauses[name]
    if json:
        offered = {p: _offered(one) for p, one in chosen.items()}
        clauses = {c: _promised(one) for c, one in promised.items()}
        print_json({"plugins": offered, "faults": faults, "clauses": clauses, "broken": broken})
        raise typer.Exit(code)
    console = output()
    for plugin, offer in chosen.items():
        named = everything or name is not None
        said = [_words(what, value, named) for what, value in _offered(offer).items()]
        show(console, (plugin, "bold"), f"  {', '.join(filter(None, said))}")
    if name is not None:
        for fault, told in faults.items():
            show(console, f"  faults.{fault}({told['arguments']})  {told['says']}")
        for one in promised.values():
            show(console, f"  {one.id}  {one.says} ({one.source})")
    for plugin, why in broken.items():
        show(console, (plugin, "red"), f"  disabled: {why}")
    raise typer.Exit(code)


def _offered(offer: Offer) -> Mapping[str, object]:
    return {
        "systems": sorted(offer.systems),
        "faults": sorted(offer.faults),
        "workloads": sorted(offer.workloads),
        "clauses": sorted(offer.clauses),
        "rules": len(offer.rules),
        "applicability": len(offer.applicability),
        "event_kinds": [kind.__name__ for kind in offer.event_kinds],
        "known_findings": sorted(offer.known_findings),
    }


def _words(what: str, value: object, named: bool) -> str:
    if not value:
        return ""
    if not isinstance(value, list):
        return f"{what}: {value}"
    return f"{what}: {' '.join(value) if named or what in _TYPED else len(value)}"


def _promised(clause: Clause) -> Mapping[str, object]:
    return {"says": clause.says, "source": clause.source, "planes": clause.planes}


def _described(factory: FaultFactory) -> Mapping[str, str]:
    """A fault's arguments, as a test writes them, and what it does."""
    says = " ".join(docstring(factory).split())
    return {"arguments": arguments_of(factory), "says": says}
