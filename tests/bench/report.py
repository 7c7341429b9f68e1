"""Shared by the benchmarks: their options, and the output of figures."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from statistics import median


def parse(
    doc: str | None, runs: int, more: argparse.ArgumentParser | None = None
) -> argparse.Namespace:
    """`--json`, `--runs`, which repeats a measurement that often, and options of its own."""
    parser = argparse.ArgumentParser(
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[more] if more else [],
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=runs, help=f"how often ({runs})")
    return parser.parse_args()


def summary(figures: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest, to four digits."""
    named = {"median": median(figures), "min": min(figures), "max": max(figures)}
    return {name: float(f"{figure:.4g}") for name, figure in named.items()}


def percentile(figures: Sequence[float], share: float) -> float:
    """The least figure that this share of the figures does not exceed."""
    ordered = sorted(figures)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def show(options: argparse.Namespace, found: Mapping[str, object]) -> None:
    """Prints the results, one line per figure or as one JSON object."""
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:>26}  {json.dumps(value)}")
