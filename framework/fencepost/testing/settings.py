"""The settings of a session of pytest: its options, and all other places that set the same."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import pytest

from fencepost.events.integers import MOST
from fencepost.model.clock import NO_SPAN, span_ns
from fencepost.model.configuration import Configuration, configured_for, from_environment, seed_of
from fencepost.model.errors import UsageError
from fencepost.model.secrets import redacted
from fencepost.model.system.attachment import ANY
from fencepost.model.system.shape import DEFAULT_SHAPE, Shape, options_of, shape_of
from fencepost.model.versions import in_image

_HELP = {
    "system": "system under test, such as reference/quorum or apache/kraft@4.1.0",
    "workload": "the workload of its clients; the system's own when not given",
    "runtime": "where its processes live: process, simulated, docker or attached",
    "attach": "the file of a cluster that runs already, in place of a system and a runtime; the "
    "tests run on it, and leave it as it was",
    "seed": "the seed of every random choice, or 'last'; drawn anew when not given",
    "out": "folder in which each test's run is kept, below the root directory",
    "defects": "defects of the system to switch on, comma-separated; the tests must find them",
    "security": "how the listeners of its nodes are secured, such as SASL_SSL; open by default",
}
"""The options `--fencepost-*`. They are also variables of the environment, `FENCEPOST_*`, settings
of the ini file, `fencepost_*`, and keys of `[tool.fencepost]`: the first of these four that sets a
value decides."""
_SHAPE = {
    "count": ("NAME=N", "one of the counts of the system; repeatable"),
    "setting": ("NAME=VALUE", "a setting of the system; repeatable"),
}
"""The options `--fencepost-*` that may be repeated, and are options only. What a test's own
`fencepost_shape` says is stronger: the test needs it."""
_IMAGE = "the image in which the nodes of the system run on docker"
_BUDGET = (
    "the time that the tests may take, such as 20m: none begins that may not end in it, and the "
    "session is undecided if one did not begin"
)


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """The values of the options, from the command line, the environment, the ini file,
    pyproject.toml or the defaults."""

    system: str
    runtime: str
    seed: int
    out: Path
    shape: Shape = DEFAULT_SHAPE
    """Of the clusters, but for what a test asks for itself."""
    workload: str = ""
    budget_ns: int | None = None
    """The time that the session's tests may take; None: any."""

    def replay(self, nodeid: str) -> str:
        """The line that runs one test again in the same way."""
        options = {"system": self.system, "runtime": self.runtime, "seed": str(self.seed)}
        if self.workload:
            options["workload"] = self.workload
        shown = replace(self.shape, settings=redacted(self.shape.settings))
        given = (*options.items(), *options_of(shown))
        words = [f"--fencepost-{name}={value}" for name, value in given]
        return shlex.join(["pytest", nodeid, *words])


LAST = "last"
LAST_SEED = "last-seed"
"""The file below the output folder that holds the last session's seed."""


def add_options(parser: pytest.Parser) -> None:
    """Adds the options, and the settings of the ini file."""
    group = parser.getgroup("fencepost", "fault injection by Fencepost")
    for name, text in _HELP.items():
        group.addoption(f"--fencepost-{name}", metavar=name.upper(), help=text)
        parser.addini(f"fencepost_{name}", text, default=None)
    for name, (metavar, text) in _SHAPE.items():
        group.addoption(f"--fencepost-{name}", metavar=metavar, help=text, action="append")
    group.addoption("--fencepost-image", metavar="SYSTEM=IMAGE", help=_IMAGE, default="")
    group.addoption("--fencepost-budget", metavar="TIME", help=_BUDGET)


def settings_of(config: pytest.Config) -> Settings:
    """The settings of a session; raises pytest.UsageError for a bad one."""
    try:
        # Tests elsewhere, of a folder that sets nothing, are run as the project here is.
        here = config.invocation_params.dir
        configured = configured_for(config.rootpath) or configured_for(here)
    except UsageError as wrong:
        raise pytest.UsageError(str(wrong)) from wrong
    variables = from_environment(os.environ)
    given = {
        name: config.getoption(f"fencepost_{name}")
        or variables.get(name)
        or config.getini(f"fencepost_{name}")
        for name in _HELP
    }
    if option := config.getoption("fencepost_attach"):
        given["attach"] = str(Path(config.invocation_params.dir, option))
    defects = given.pop("defects")
    # xdist's workers get the seed that was drawn by the process that started them.
    seed = getattr(config, "workerinput", {}).get("fencepost_seed", given.pop("seed"))
    chosen = {**configured, **{name: value for name, value in given.items() if value}}
    if defects:
        chosen["defects"] = tuple(name for name in defects.split(",") if name)
    if file := chosen.get("attach"):
        chosen |= {"system": f"{ANY}@{config.rootpath / file}", "runtime": "attached"}
    found = Configuration(**chosen)
    try:
        (system,) = in_image([found.system], config.getoption("fencepost_image"))
        shape = shape_of(*(config.getoption(f"fencepost_{name}") for name in _SHAPE))
    except UsageError as wrong:
        raise pytest.UsageError(str(wrong)) from wrong
    out = config.rootpath / found.out
    return Settings(
        system=system,
        runtime=found.runtime,
        seed=_seed(seed or "", found.seed, out),
        out=out,
        shape=replace(shape, defects=found.defects, security=found.security),
        workload=found.workload,
        budget_ns=_budget(config.getoption("fencepost_budget")),
    )


def _budget(given: str | None) -> int | None:
    found = None if given is None else span_ns(given)
    if given is not None and found is None:
        raise pytest.UsageError(f"{given!r} {NO_SPAN}: correct --fencepost-budget")
    return found


def _seed(given: str, configured: int | None, out: Path) -> int:
    """The seed that was given, or else that of pyproject.toml, or else a new one."""
    if given == LAST:
        given = _last_seed(out)
    if not given:
        # From the kernel: the one draw that nothing repeats. From here on the seed decides.
        return int.from_bytes(os.urandom(4)) if configured is None else configured
    seed = seed_of(given)
    if seed is None:
        raise pytest.UsageError(
            f"the seed of Fencepost is 0 to {MOST}, or 'last', not {given!r}: correct "
            "--fencepost-seed, FENCEPOST_SEED or the ini file"
        )
    return seed


def _last_seed(out: Path) -> str:
    """The seed of the last session that started a run below this folder."""
    try:
        return (out / LAST_SEED).read_text().strip()
    except OSError:
        raise pytest.UsageError(f"the seed 'last': no session has run below {out}") from None
