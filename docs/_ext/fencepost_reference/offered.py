"""What plugins offer: faults, systems with their settings, workloads, defects."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping

from fencepost import Configured, HasDefects, Versioned
from fencepost.reporting import docstring
from fencepost_reference.loaded import plugins
from fencepost_reference.text import code, line, prose, table

SMALLEST: Mapping[str, Mapping[str, str]] = {
    "quorum": {
        "process.roles": "broker",
        "broker.id": "1",
        "controller.connect": "controller-1:9093",
    },
    "legacy": {"broker.id": "1", "zookeeper.connect": "zookeeper-1:2181"},
    "classic": {
        "control.plane": "classic",
        "broker.id": "1",
        "zookeeper.connect": "zookeeper-1:2181",
    },
}
"""The smallest configuration of a broker of the reference cluster, by plane; everything else is a
default."""


def faults() -> str:
    """Every fault with its arguments, by the module that says what it imitates."""
    parts: list[str] = []
    for offer in plugins().offers:
        modules = dict.fromkeys(factory.__module__ for factory in offer.faults.values())
        for module in modules:
            parts.append(f"## Plugin `{offer.plugin}`, module `{module}`\n")
            parts.append(prose(docstring(sys.modules[module])) + "\n")
            for name, factory in offer.faults.items():
                if factory.__module__ == module:
                    parts.append(f"### `{name}`\n\n{code(name + _arguments(factory))}\n")
                    parts.append(prose(docstring(factory)) + "\n")
    return "\n".join(parts)


def _arguments(factory: object) -> str:
    assert callable(factory)
    signature = inspect.signature(factory, eval_str=False)
    parameters = [p.replace(annotation=_words(p.annotation)) for p in signature.parameters.values()]
    shown = [
        f"{p.name}: {p.annotation}" + ("" if p.default is p.empty else f" = {_plain(p.default)}")
        for p in parameters
    ]
    return f"({', '.join(shown)})"


def _words(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "object")


def _plain(default: object) -> str:
    return repr(str(default)) if isinstance(default, str) else repr(default)


def systems() -> str:
    """Every system with its plane, counts, workload and capabilities."""
    rows = []
    for name, system in sorted(plugins().systems.items()):
        counts = ", ".join(f"{count} = {n}" for count, n in system.counts.items())
        version = system.version if isinstance(system, Versioned) else ""
        rows.append(
            (code(name), code(system.plane), counts, code(system.workload), line(str(version)))
        )
    return table(("system", "plane", "counts, with defaults", "workload", "version"), rows)


def workloads() -> str:
    """Every workload with the argv of its worker."""
    rows = [
        (code(name), code(" ".join(workload.argv)))
        for name, workload in sorted(plugins().workloads.items())
    ]
    return table(("workload", "its worker, after the Python interpreter"), rows)


def defects() -> str:
    """Every defect, by system."""
    return "\n".join(_defects())


def _defects() -> Iterator[str]:
    for name, system in sorted(plugins().systems.items()):
        if isinstance(system, HasDefects) and system.defects():
            yield f"## Of `{name}`\n"
            rows = [
                (
                    code(one.name),
                    line(one.says),
                    ", ".join(one.breaks),
                    line("; ".join(f"{runtime}: {why}" for runtime, why in one.unseen.items())),
                )
                for one in system.defects()
            ]
            yield table(("defect", "what the system does then", "breaks", "not seen on"), rows)


def settings() -> str:
    """The settings of each system that can show how it reads a configuration."""
    parts = []
    for name, system in sorted(plugins().systems.items()):
        if isinstance(system, Configured):
            parts.append(f"### Of `{name}`\n")
            smallest = SMALLEST[system.plane]
            rows = [
                (code(setting), code(value))
                for setting, value in sorted(system.effective(smallest).items())
                if setting not in smallest
            ]
            parts.append(table(("setting", "default"), rows))
    return "\n".join(parts)
