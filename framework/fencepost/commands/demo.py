"""`fencepost demo`: breaks a healthy cluster and one with a planted defect, and explains both."""

from __future__ import annotations

import typer

from fencepost.commands.options import DEFAULT_OUT, DEFAULT_SYSTEM, Json, Out, Seed, System
from fencepost.commands.terminal import (
    load_plugins,
    output,
    print_json,
    print_verdicts,
    progress,
    show,
)
from fencepost.judging.judge import Outcome
from fencepost.model.errors import EXIT_CLEAN, EXIT_INCONCLUSIVE, EXIT_VIOLATED
from fencepost.runs import demo as demos
from fencepost.runs.run import explain_violations


def demo(
    system: System = DEFAULT_SYSTEM,
    seed: Seed = 1,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Breaks a healthy cluster and judges it; then one with a planted defect, and explains it."""
    plugins = load_plugins()
    result = demos.demo(plugins.system(system), plugins, out, seed, progress())
    if json:
        print_json(result.as_json())
    else:
        _show_demo(result)
    if result.trouble is not None:
        raise result.trouble
    raise typer.Exit(EXIT_CLEAN if result.clean else _demo_code(result))


def _show_demo(result: demos.DemoResult) -> None:
    console = output()
    healthy, planted = (run.result for run in result.runs)
    show(console, ("\nThe healthy cluster", "bold"))
    print_verdicts(healthy.judgement, console)
    show(console, (f"\nWith the defect '{result.runs[1].defect}' planted", "bold"))
    broken = planted.judgement.of(Outcome.VIOLATED)
    if broken:
        show(console, explain_violations(planted.judgement.verdicts))
    else:
        show(console, "the planted defect was not found: a rule or this demo is wrong")
    missed = [r.fault_id for run in result.runs for r in run.receipts if not r.receipt]
    if missed:
        show(console, (f"\nfaults without a receipt: {', '.join(missed)}", "yellow"))
    page = "" if result.page is None else f" The page: {result.page}"
    show(console, f"\n{result.elapsed_s:.0f} s.{page}")


def _demo_code(result: demos.DemoResult) -> int:
    if result.runs[0].result.judgement.of(Outcome.VIOLATED):
        return EXIT_VIOLATED
    return EXIT_INCONCLUSIVE
