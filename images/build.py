"""Builds the images of this checkout on whichever container engine is found.

    ./dev images [--base IMAGE] [--json]

Nothing is downloaded within a build: packages, the project's own wheel and toxiproxy-server are
gathered here and copied in. The base is Python's public image, pulled; where no registry answers, a
Debian with Python is made by debootstrap (as root, from Debian's own mirror) and imported. An image
whose inputs have not changed is left as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import APIError, BuildError, DockerException, ImageNotFound

from fencepost.engine import open_client
from fencepost.errors import EnvironmentFailed
from fencepost.pods import IMAGE as POD
from fencepost.sources import SOURCES_LABEL, digest
from fencepost.toxiproxies import find_toxiproxy
from fencepost_clusters.reference.cluster import ReferenceQuorum

HERE = Path(__file__).parent
ROOT = HERE.parent
PUBLIC_BASE = "python:3.11-slim-bookworm"
OWN_BASE = "fencepost/base:bookworm"
PYTHON = "3.11"
INPUTS_LABEL = "fencepost.inputs"
PULL_LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class Recipe:
    """An image: its folder here, the packages it adds, and what it stands on (nothing: a base)."""

    tag: str
    folder: str
    packages: tuple[str, ...]
    on: str = ""


RECIPES = (
    Recipe(POD, "pod", ("msgspec", "pluggy")),
    Recipe(ReferenceQuorum().image(), "reference", ("kio", "crc32c"), POD),
)


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def run(argv: Sequence[str], what: str, **environment: str) -> None:
    """Raises EnvironmentFailed, with what the program said last, when it fails."""
    done = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise EnvironmentFailed(f"{what} failed", last)


def image_id(client: docker.APIClient, name: str) -> str:
    """Nothing when there is no such image."""
    try:
        return str(client.inspect_image(name)["Id"])
    except ImageNotFound:
        return ""


def base_of(client: docker.APIClient, wanted: str) -> str:
    """An image with Python that is there: the wanted one, pulled or made if need be."""
    for name in (wanted,) if wanted else (PUBLIC_BASE, OWN_BASE):
        if image_id(client, name):
            return name
    try:
        say(f"Pulling {wanted or PUBLIC_BASE} ...")
        client.pull(wanted or PUBLIC_BASE)
    except (APIError, DockerException) as failed:
        if wanted:
            raise EnvironmentFailed(f"{wanted} could not be pulled: {failed}") from failed
        say("No registry answers: making a base by debootstrap ...")
        debootstrap(client)
        return OWN_BASE
    return wanted or PUBLIC_BASE


def debootstrap(client: docker.APIClient) -> None:
    """Makes and imports a small Debian with Python."""
    program = shutil.which("debootstrap") or shutil.which("debootstrap", path="/usr/sbin")
    if program is None or os.geteuid():
        raise EnvironmentFailed(
            "no registry answers, and a base cannot be made: that takes root and debootstrap"
        )
    with tempfile.TemporaryDirectory() as scratch:
        root, packed = Path(scratch, "root"), Path(scratch, "root.tar")
        options = ["--variant=minbase", "--include=python3"]
        run([program, *options, "bookworm", str(root)], "debootstrap")
        run(["tar", "-C", str(root), "--exclude=./var/cache/apt/archives/*.deb", "-cf",
             str(packed), "."], "packing the base")  # fmt: skip
        repository, _, tag = OWN_BASE.partition(":")
        client.import_image_from_file(str(packed), repository=repository, tag=tag)


def gather(context: Path, packages: Sequence[str], wheel: Path | None, machine: str) -> None:
    """Puts packages, as the image's Python wants them, into `site`."""
    site = context / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    there = ["--target", str(site), "--only-binary=:all:", "--python-version", PYTHON]
    there += [f"--platform={kind}_{machine}" for kind in ("manylinux_2_28", "manylinux2014")]
    constraint = ["--constraint", str(ROOT / "requirements.lock")]
    run([*pip, *there, *constraint, *packages], f"getting {', '.join(packages)}")
    if wheel is not None:
        run([*pip, *there, "--upgrade", "--no-deps", str(wheel)], "unpacking the project's wheel")


def project_wheel(scratch: Path) -> Path:
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    run([*argv, "--no-build-isolation", "--wheel-dir", str(scratch), "."], "building the wheel")
    return next(scratch.glob("fencepost-*.whl"))


def inputs(recipe: Recipe, base_id: str) -> str:
    """A digest of all that an image is made of."""
    whole = hashlib.sha256()
    for part in (HERE / recipe.folder / "Dockerfile", Path(__file__), ROOT / "requirements.lock"):
        whole.update(part.read_bytes())
    for word in (base_id, digest()):
        whole.update(word.encode())
    if not recipe.on:
        whole.update(find_toxiproxy(os.environ).read_bytes())
    return whole.hexdigest()[:16]


def build(client: docker.APIClient, recipe: Recipe, base: str, machine: str) -> bool:
    """Builds an image if its inputs have changed; whether they had."""
    made_of = inputs(recipe, image_id(client, base))
    if image_id(client, recipe.tag):
        labels = client.inspect_image(recipe.tag)["Config"].get("Labels") or {}
        if labels.get(INPUTS_LABEL) == made_of:
            return False
    say(f"Building {recipe.tag} on {base} ...")
    with tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch, "context")
        shutil.copytree(HERE / recipe.folder, context)
        wheel = None
        if not recipe.on:
            wheel = project_wheel(Path(scratch))
            shutil.copy(find_toxiproxy(os.environ), context / "toxiproxy-server")
        gather(context, recipe.packages, wheel, machine)
        labels = {SOURCES_LABEL: digest(), INPUTS_LABEL: made_of}
        told = client.build(
            path=str(context), tag=recipe.tag, buildargs={"BASE": base}, labels=labels,
            network_mode="none", rm=True, forcerm=True, decode=True,
        )  # fmt: skip
        said: list[str] = []
        for line in told:
            said += [str(line[key]).rstrip() for key in ("stream", "error") if line.get(key)]
            if "error" in line:
                raise EnvironmentFailed(f"building {recipe.tag} failed", "\n".join(said[-15:]))
    return True


def build_all(base: str) -> Mapping[str, bool]:
    """Every image of this checkout, and whether it was built anew."""
    client = open_client(os.environ)
    try:
        arch = client.version()["Arch"]
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)
        chosen = base_of(client, base)
        return {
            recipe.tag: build(client, recipe, recipe.on or chosen, machine) for recipe in RECIPES
        }
    except (DockerException, BuildError) as failed:
        raise EnvironmentFailed(f"the container engine broke off: {failed}") from failed
    finally:
        client.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev images", description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="", help=f"an image with Python {PYTHON} to build on")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    try:
        built = build_all(options.base)
    except EnvironmentFailed as failed:
        say(f"./dev images: {failed}")
        return failed.exit_code
    if options.json:
        print(json.dumps({"images": {name: "built" if new else "as is" for name, new in
                                     built.items()}}))  # fmt: skip
    else:
        for name, new in built.items():
            print(f"{name}: {'built' if new else 'as it was'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
