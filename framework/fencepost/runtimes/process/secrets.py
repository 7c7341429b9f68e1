"""The folder of a run's secrets: keys and passwords that nodes and clients read (`Secured`).

It is not in the run's folder, which is kept and shown to others. Only the user can read it, and it
is removed when the run ends.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fencepost.model.clock import wall_clock
from fencepost.model.disk import written_to
from fencepost.model.system.capabilities import Secured
from fencepost.model.system.probe import Probe
from fencepost.model.system.subject import Subject
from fencepost.model.system.topology import Layout
from fencepost.runtimes.process.backend import Addressing


def addresses_of(layout: Layout, addressing: Addressing) -> Mapping[str, Sequence[str]]:
    """Every address at which the process of a slot is reached: its own, and its links' ends."""
    found: dict[str, set[str]] = defaultdict(set)
    for slot in layout.slots:
        found[slot.name].add(addressing.own(slot))
    for link in layout.links:
        target = layout.slot(link.target)
        found[target.name].add(addressing.seen(layout.slot(link.source), target))
    return {name: sorted(ends) for name, ends in found.items()}


@contextmanager
def secrets_folder(
    subject: Subject, layout: Layout, addressing: Addressing
) -> Iterator[Path | None]:
    """The folder with the secrets of a run, until the `with` ends; None if the run has none.

    Raises EnvironmentFailed if the disk is full.
    """
    system, shape = subject.system, subject.shape
    if not shape.security or not isinstance(system, Secured):
        yield None
        return
    # mkdtemp makes a folder that only its user can open.
    made = system.secrets(shape, layout, addresses_of(layout, addressing), wall_clock())
    with tempfile.TemporaryDirectory(prefix="fencepost-secrets-") as folder:
        with written_to(Path(folder)):
            for name, text in made.items():
                _write_private(Path(folder, name), text)
        yield Path(folder)


def write_client_files(subject: Subject, secrets: Path | None, user: str) -> None:
    """Writes the files by which a program gets in (`Secured.client_files`), once."""
    system = subject.system
    if secrets is None or not isinstance(system, Secured):
        return
    for name, text in system.client_files(subject.shape, secrets, user).items():
        if not (secrets / name).exists():
            _write_private(secrets / name, text)


def probe_of_secured(subject: Subject, secrets: Path | None) -> Probe | None:
    """The probe of a run with secrets; None: the system's own serves."""
    system = subject.system
    if secrets is None or not isinstance(system, Secured):
        return None
    return system.secured_probe(subject.shape, secrets)


def _write_private(path: Path, text: str) -> None:
    # The mode is given as the file is made: there is no moment at which others can read it.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
