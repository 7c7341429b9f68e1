"""A Sphinx extension: fills the reference pages from the code.

A page holds a comment such as `<!-- generated: events -->`, and the Markdown of that name from
`GENERATORS` takes its place. Nothing is written to the source folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from fencepost_reference import api, commands, events, judged, matrix, offered, releases, stable

GENERATORS: dict[str, Callable[[], str]] = {
    "events": events.kinds,
    "clauses": judged.clauses,
    "applicability": judged.applicability,
    "conformance": matrix.conformance,
    "releases": releases.releases,
    "faults": offered.faults,
    "systems": offered.systems,
    "workloads": offered.workloads,
    "defects": offered.defects,
    "settings": offered.settings,
    "hooks": api.hooks,
    "api": stable.exported,
    "fixtures": api.fixtures,
    "markers": api.markers,
    "options": api.options,
    "commands": commands.commands,
    "exit-codes": commands.exit_codes,
}
PLACE = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)


def fill(text: str) -> str:
    """A page with every comment replaced; raises KeyError for a name without a generator."""
    return PLACE.sub(lambda found: GENERATORS[found[1]](), text)


def _fill_page(app: Any, docname: str, source: list[str]) -> None:
    source[0] = fill(source[0])


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("source-read", _fill_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
