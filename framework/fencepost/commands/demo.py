"""`fencepost demo`: breaks a healthy cluster and one with a planted defect, and explains both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from fencepost.campaigns import endings
from fencepost.commands.options import DEFAULT_OUT, DEFAULT_SYSTEM, Json, Out, Seed
from fencepost.commands.terminal import (
    load_plugins,
    output,
    print_json,
    print_stalls,
    print_verdicts,
    progress,
    show,
)
from fencepost.judging.verdicts import Outcome
from fencepost.model.errors import EXIT_CLEAN, EXIT_INCONCLUSIVE, EXIT_VIOLATED
from fencepost.runs import demo as demos
from fencepost.runs.run import explain_violations

Shown = Annotated[
    str,
    typer.Option(
        help="The one system to show; without it, "
        f"{DEFAULT_SYSTEM} and those that follow it in the demo."
    ),
]


def demo(
    system: Shown = "",
    seed: Seed = 1,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Breaks a healthy cluster and judges it; then one with a planted defect, and explains it."""
    plugins = load_plugins()
    systems = [plugins.system(system)] if system else demos.systems_shown(DEFAULT_SYSTEM, plugins)
    console = output()
    result = demos.demo(
        systems,
        plugins,
        out,
        seed,
        report=progress(),
        ended=lambda act: None if json else _show_act(act, console),
    )
    if json:
        print_json(result.as_json())
    else:
        page = "" if result.page is None else f" The page: {result.page}"
        show(console, f"\n{result.elapsed_s:.0f} s.{page}")
        for own in result.apart:
            show(console, f"The page of {own.parent.parent.name}: {own}")
        if result.lacks:
            show(console, f"No page shows all runs together: {result.lacks}")
    if result.trouble is not None:
        raise result.trouble
    code = EXIT_CLEAN if result.clean else _demo_code(result)
    if not json:
        for line in _ending(result, code):
            show(console, line)
    raise typer.Exit(code)


def _ending(result: demos.DemoResult, code: int) -> Iterator[str]:
    """Where to go on, and the reason for the exit code."""
    acts = result.acts
    found = sum(bool(set(act.planted) & set(act.found)) for act in acts)
    broken = [one for act in acts for one in act.healthy.result.judgement.broken]
    unknown = [one for act in acts for one in act.healthy.result.judgement.of(Outcome.UNKNOWN)]
    missed = sum(not one.receipt for act in acts for run in act.runs for one in run.receipts)
    cut = sum(act.healthy.result.trouble is not None for act in acts)
    yield endings.go_on(str(acts[-1].broken.result.folder.path))
    yield endings.exit_reason(
        code,
        f"{endings.counted(len(broken), 'clause')} violated by a healthy cluster" if broken else "",
        f"{len(unknown)} undecided of a healthy cluster" if unknown else "",
        f"{endings.counted(missed, 'fault')} without a receipt" if missed else "",
        f"{endings.counted(cut, 'run')} cut short" if cut else "",
        f"{found} of {endings.counted(len(acts), 'planted defect')} found",
    )


def _show_act(act: demos.Act, console: Console) -> None:
    show(console, (f"\n{act.system}, healthy", "bold"))
    print_verdicts(act.healthy.result.judgement, console)
    show(console, (f"\n{act.system}, with the defect '{act.broken.defect}' planted", "bold"))
    if act.found:
        show(console, explain_violations(act.broken.result.judgement.verdicts))
    else:
        show(console, "the planted defect was not found: a rule or this demo is wrong")
    for run in act.runs:
        print_stalls(run.result.end, f"{run.result.folder.run}: ")
    missed = [r.fault_id for run in act.runs for r in run.receipts if not r.receipt]
    if missed:
        show(console, (f"\nfaults without a receipt: {', '.join(missed)}", "yellow"))


def _demo_code(result: demos.DemoResult) -> int:
    broken = any(act.healthy.result.judgement.of(Outcome.VIOLATED) for act in result.acts)
    return EXIT_VIOLATED if broken else EXIT_INCONCLUSIVE
