"""The options that several commands take, with one meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

System = Annotated[str, typer.Option(help="System under test.")]
Runtime = Annotated[str, typer.Option(help="Where its processes live.")]
Workload = Annotated[str, typer.Option(help="Whose clients work on it; the system's, if none.")]
Seed = Annotated[int, typer.Option(help="What every choice of chance derives from.")]
Out = Annotated[Path, typer.Option(help="Folder below which run folders are made.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]

DEFAULT_SYSTEM = "reference/quorum"
DEFAULT_OUT = Path(".fencepost")
