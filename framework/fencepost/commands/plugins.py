"""`fencepost plugins`: what the loaded plugins offer."""

from __future__ import annotations

import typer

from fencepost.commands.options import Json
from fencepost.commands.terminal import load_plugins, output, print_json, show
from fencepost.model.errors import EXIT_CLEAN, EXIT_ENVIRONMENT


def plugins(json: Json = False) -> None:
    """Lists what the loaded plugins offer, and those that were disabled (exit code 4)."""
    loaded = load_plugins()
    offers = {
        offer.plugin: {
            "systems": sorted(offer.systems),
            "faults": sorted(offer.faults),
            "workloads": sorted(offer.workloads),
            "clauses": len(offer.clauses),
            "rules": len(offer.rules),
            "applicability": len(offer.applicability),
            "event_kinds": [kind.__name__ for kind in offer.event_kinds],
            "known_findings": sorted(offer.known_findings),
        }
        for offer in loaded.offers
    }
    code = EXIT_ENVIRONMENT if loaded.broken else EXIT_CLEAN
    if json:
        print_json({"plugins": offers, "broken": loaded.broken})
        raise typer.Exit(code)
    console = output()
    for name, offered in offers.items():
        words = ", ".join(f"{k}: {_words(v)}" for k, v in offered.items() if v)
        show(console, (name, "bold"), f"  {words}")
    for name, why in loaded.broken.items():
        show(console, (name, "red"), f"  disabled: {why}")
    raise typer.Exit(code)


def _words(value: object) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)
