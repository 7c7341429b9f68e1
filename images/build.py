"""Builds the images of this checkout with the container engine that is found.

    ./dev images [reference] [kafka] [zookeeper] [etcd] [--kafka VERSION] [--base IMAGE]
                 [--java-base IMAGE] [--with PACKAGE] [--json]

A build downloads nothing: this program gathers packages, the project's wheel, toxiproxy and the
software of other systems, and copies them into the build's context. The base images are public
ones, which are pulled. If no registry answers, debootstrap makes a Debian with Python or a JRE (as
root, from Debian's own mirror). An image whose inputs have not changed is not built again. Kafka
stays in the user's cache, where runs in containers read its schemas.

Pods measure links by the probe of the system, which they import. A probe of another package than
this project's comes into the image of pods by `--with`: a wheel, or the folder of a project.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import APIError, BuildError, DockerException, ImageNotFound

from fencepost.injection.toxiproxies import PROGRAM, find_toxiproxy
from fencepost.model.errors import EnvironmentFailed
from fencepost.runtimes.docker.engine import open_client
from fencepost.runtimes.docker.pods import IMAGE as POD
from fencepost.runtimes.docker.sources import SOURCES_LABEL, digest
from fencepost_clusters.apache_kafka.builds import released
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION, image_of, resource
from fencepost_clusters.apache_kafka.distribution import AGENT, AGENT_IN_IMAGE, installed
from fencepost_clusters.etcd.build import binary, default_cache
from fencepost_clusters.etcd.system import IMAGE as ETCD
from fencepost_clusters.reference.cluster import IMAGE as REFERENCE
from fencepost_clusters.zookeeper import distribution as zookeeper
from fencepost_clusters.zookeeper.slots import IMAGE as ZOOKEEPER

HERE = Path(__file__).parent
ROOT = HERE.parent
PYTHON = "3.11"
INPUTS_LABEL = "fencepost.inputs"
ARCHIVE, LOGGING = "archive.sh", "log4j2.properties"
_MADE = frozenset({"build", "dist"})
KNOWN = ("reference", "kafka", "zookeeper", "etcd")
ON_JAVA = frozenset({"kafka", "zookeeper"})


@dataclass(frozen=True, slots=True)
class Base:
    """A base image: a public one, or an image `own` that is made here of Debian's packages."""

    public: str
    own: str
    packages: str


PYTHON_BASE = Base("python:3.11-slim-bookworm", "fencepost/base:bookworm", "python3")
JAVA_BASE = Base(
    "eclipse-temurin:17-jre", "fencepost/java-base:bookworm", "openjdk-17-jre-headless"
)


@dataclass(frozen=True, slots=True)
class Software:
    """A program in an image. `put` copies it into a context; `stamp` changes whenever the copied
    files do. Both download it first if it is missing."""

    stamp: Callable[[], str]
    put: Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """An image: its folder here, the name of its base image (`on`), and its contents.

    `packages` are Python packages; `wheel`: the image also contains the project and our toxiproxy.
    `extra` are wheels and folders of projects, which it contains without what they require.
    """

    tag: str
    folder: str
    on: str
    packages: tuple[str, ...] = ()
    wheel: bool = False
    extra: tuple[Path, ...] = ()
    software: Software | None = None


def recipes(
    wanted: Sequence[str], kafka: str, base: str, java_base: str, extra: Sequence[Path] = ()
) -> Sequence[Recipe]:
    """The images to build, in order. The image of the pod is always built; it has the extra
    packages."""
    found = [Recipe(POD, "pod", base, ("msgspec", "pluggy"), wheel=True, extra=tuple(extra))]
    if "reference" in wanted:
        tag = REFERENCE
        found.append(Recipe(tag, "reference", POD, ("kio", "crc32c", "cramjam", "kazoo")))
    if "kafka" in wanted:
        found.append(Recipe(image_of(kafka), "kafka", java_base, software=kafka_of(kafka)))
    if "zookeeper" in wanted:
        found.append(Recipe(ZOOKEEPER, "zookeeper", java_base, software=zookeeper_software()))
    if "etcd" in wanted:
        found.append(Recipe(ETCD, "etcd", POD, software=etcd_software()))
    return found


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def run(argv: Sequence[str], what: str, **environment: str) -> None:
    """Runs a program. If it fails, raises EnvironmentFailed with the end of its output."""
    done = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise EnvironmentFailed(f"{what} failed", last)


def image_id(client: docker.APIClient, name: str) -> str:
    """The id of an image; empty if there is no image of that name."""
    try:
        return str(client.inspect_image(name)["Id"])
    except ImageNotFound:
        return ""


def base_of(client: docker.APIClient, base: Base, wanted: str) -> str:
    """The name of an available base: the wanted image, the public one, or one made here."""
    for name in (wanted,) if wanted else (base.public, base.own):
        if image_id(client, name):
            return name
    say(f"Pulling {wanted or base.public} ...")
    trouble = pull(client, wanted or base.public)
    if not trouble:
        return wanted or base.public
    if wanted:
        raise EnvironmentFailed(f"{wanted} could not be pulled: {trouble}")
    say(f"No registry answers: making {base.own} by debootstrap ...")
    debootstrap(client, base)
    return base.own


def pull(client: docker.APIClient, name: str) -> str:
    """Pulls an image; returns the error, or an empty text. The error may come late in the
    stream."""
    try:
        for progress in client.pull(name, stream=True, decode=True):
            if "error" in progress:
                return str(progress["error"])
    except DockerException as failed:
        return str(failed)
    return ""


def debootstrap(client: docker.APIClient, base: Base) -> None:
    """Makes and imports a small Debian with the base's packages."""
    program = shutil.which("debootstrap") or shutil.which("debootstrap", path="/usr/sbin")
    if program is None or os.geteuid():
        raise EnvironmentFailed(
            "no registry answers, and a base image can be made only as root with debootstrap"
        )
    with tempfile.TemporaryDirectory() as scratch:
        root, packed = Path(scratch, "root"), Path(scratch, "root.tar")
        options = ["--variant=minbase", f"--include={base.packages}"]
        run([program, *options, "bookworm", str(root)], "debootstrap")
        run(["tar", "-C", str(root), "--exclude=./var/cache/apt/archives/*.deb", "-cf",
             str(packed), "."], "packing the base")  # fmt: skip
        repository, _, tag = base.own.partition(":")
        reply = client.import_image_from_file(str(packed))
        made = json.loads(reply.splitlines()[-1])["status"]
        client.tag(made, repository, tag)  # Podman's import would take no tag


def gather(context: Path, packages: Sequence[str], wheels: Sequence[Path], machine: str) -> None:
    """Installs packages for the image's Python and machine into `site`, then wheels as they are,
    without what they require."""
    site = context / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    there = ["--target", str(site), "--only-binary=:all:", "--python-version", PYTHON]
    there += [f"--platform={kind}_{machine}" for kind in ("manylinux_2_28", "manylinux2014")]
    constraint = ["--constraint", str(ROOT / "requirements.lock")]
    if packages:
        run([*pip, *there, *constraint, *packages], f"getting {', '.join(packages)}")
    for wheel in wheels:
        run([*pip, *there, "--upgrade", "--no-deps", str(wheel)], f"unpacking {wheel.name}")


def wheel_of(project: Path, scratch: Path) -> Path:
    """The wheel of a project's folder, built with the tools of this environment; a wheel itself."""
    if project.is_file():
        return project
    into = Path(tempfile.mkdtemp(dir=scratch))
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    argv += ["--no-build-isolation", "--wheel-dir", str(into), str(project)]
    run(argv, f"building the wheel of {project}")
    return next(into.glob("*.whl"))


def extra_packages(given: Sequence[str]) -> Sequence[Path]:
    """The wheels and folders of `--with`; raises EnvironmentFailed for anything else."""
    found = [Path(one).absolute() for one in given]
    for path in found:
        if not (path / "pyproject.toml").is_file() and path.suffix != ".whl":
            raise EnvironmentFailed(f"{path} is neither a wheel nor a folder with a pyproject.toml")
        if not path.exists():
            raise EnvironmentFailed(f"there is no {path}")
    return found


def stamp_of(package: Path) -> str:
    """A digest of a wheel, or of the files of a project that are not hidden or made from others."""
    whole = hashlib.sha256()
    files = [package] if package.is_file() else sorted(package.rglob("*"))
    for path in files:
        parts = path.relative_to(package).parts
        made = any(part.startswith((".", "__pycache__")) or part in _MADE for part in parts)
        if path.is_file() and not made:
            whole.update(f"{'/'.join(parts)}\0".encode())
            whole.update(path.read_bytes())
    return whole.hexdigest()


def inputs(recipe: Recipe, base_id: str) -> str:
    """A digest of an image's inputs."""
    whole = hashlib.sha256()
    for part in (HERE / recipe.folder / "Dockerfile", Path(__file__), ROOT / "requirements.lock"):
        whole.update(part.read_bytes())
    whole.update(base_id.encode())
    if recipe.packages:
        whole.update(digest().encode())
    if recipe.wheel:
        whole.update(find_toxiproxy(os.environ).read_bytes())
    for package in recipe.extra:
        whole.update(stamp_of(package).encode())
    if recipe.software is not None:
        whole.update(recipe.software.stamp().encode())
    return whole.hexdigest()[:16]


def kafka_of(version: str) -> Software:
    """A version of Kafka, with the agent that serves its metrics. If the version has KRaft, the
    image also contains the metadata of a formatted disk."""
    build = released(version)

    def stamp() -> str:
        installed(build, os.environ, resource(LOGGING))
        return f"{version} {AGENT} {resource(ARCHIVE)} {resource(LOGGING)}"

    def put(context: Path) -> None:
        kafka = installed(build, os.environ, resource(LOGGING))
        shutil.copytree(kafka.home / "lib", context / "kafka" / "lib")
        for made in kafka.home.glob("*.checkpoint"):  # none in a version without KRaft
            shutil.copy(made, context / "kafka")
        shutil.copy(kafka.agent, context / "kafka" / AGENT_IN_IMAGE)
        for name in (ARCHIVE, LOGGING):
            (context / name).write_text(resource(name))

    return Software(stamp, put)


def zookeeper_software() -> Software:
    """The jars of ZooKeeper."""

    def put(context: Path) -> None:
        home = zookeeper.installed(os.environ).home
        shutil.copytree(home / "lib", context / "zookeeper" / "lib")

    return Software(lambda: " ".join(zookeeper.JARS.values()), put)


def etcd_software() -> Software:
    """etcd's server."""

    def put(context: Path) -> None:
        shutil.copy(binary(default_cache()), context / "etcd")

    return Software(lambda: binary(default_cache()).name, put)


def build(client: docker.APIClient, recipe: Recipe, machine: str) -> bool:
    """Builds an image if its inputs have changed; returns whether it was built."""
    base, replaced = recipe.on, image_id(client, recipe.tag)
    made_of = inputs(recipe, image_id(client, base))
    if replaced:
        labels = client.inspect_image(recipe.tag)["Config"].get("Labels") or {}
        if labels.get(INPUTS_LABEL) == made_of:
            return False
    say(f"Building {recipe.tag} on {base} ...")
    with tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch, "context")
        shutil.copytree(HERE / recipe.folder, context)
        labels = {INPUTS_LABEL: made_of}
        projects = [*((ROOT,) if recipe.wheel else ()), *recipe.extra]
        if recipe.wheel:
            shutil.copy(find_toxiproxy(os.environ), context / PROGRAM)
        if recipe.packages:
            wheels = [wheel_of(project, Path(scratch)) for project in projects]
            gather(context, recipe.packages, wheels, machine)
            labels[SOURCES_LABEL] = digest()
        if recipe.software is not None:
            recipe.software.put(context)
        progress = client.build(
            path=str(context), tag=recipe.tag, buildargs={"BASE": base}, labels=labels,
            network_mode="none", rm=True, forcerm=True, decode=True,
        )  # fmt: skip
        said: list[str] = []
        for line in progress:
            said += [str(line[key]).rstrip() for key in ("stream", "error") if line.get(key)]
            if "error" in line:
                raise EnvironmentFailed(f"building {recipe.tag} failed", "\n".join(said[-15:]))
    if replaced:
        with suppress(APIError):  # another image still has it as its base
            client.remove_image(replaced)
    return True


def build_all(options: argparse.Namespace) -> Mapping[str, bool]:
    """Builds the wanted images; returns for each whether it was built."""
    extra = extra_packages(options.extra)
    client = open_client(os.environ)
    try:
        arch = client.version()["Arch"]
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)
        python = base_of(client, PYTHON_BASE, options.base)
        on_java = not ON_JAVA.isdisjoint(options.what)
        java = base_of(client, JAVA_BASE, options.java_base) if on_java else ""
        wanted = recipes(options.what, options.kafka, python, java, extra)
        return {recipe.tag: build(client, recipe, machine) for recipe in wanted}
    except (DockerException, BuildError) as failed:
        raise EnvironmentFailed(f"the container engine broke off: {failed}") from failed
    finally:
        client.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev images", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["reference"], help=f"any of {', '.join(KNOWN)}")
    parser.add_argument("--kafka", default=DEFAULT_VERSION, help="the version of Kafka")
    parser.add_argument("--java-base", default="", help="the base image, with a JRE")
    parser.add_argument("--base", default="", help=f"the base image, with Python {PYTHON}")
    parser.add_argument("--with", dest="extra", metavar="PACKAGE", action="append", default=[],
                        help="a wheel or a project's folder, which pods import: the package of "
                        "a system's probe; may be given more than once")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    unknown = sorted(set(options.what) - set(KNOWN))
    if unknown:
        parser.error(f"there is no image {unknown[0]!r}: {', '.join(KNOWN)} are known")
    try:
        built = build_all(options)
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
