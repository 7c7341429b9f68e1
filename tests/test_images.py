"""The program that builds images, as far as it needs no container engine."""

from __future__ import annotations

import platform
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from fencepost import EnvironmentFailed

ROOT = Path(__file__).parent.parent
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fencepost-lamps"
version = "1.0"
dependencies = ["a-package-that-no-registry-has"]

[tool.hatch.build.targets.wheel]
packages = ["fencepost_lamps"]
"""


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = spec_from_file_location("build_images", ROOT / "images" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lamps(tmp_path: Path) -> Path:
    """The project of a plugin, with a probe."""
    project = tmp_path / "lamps"
    (project / "fencepost_lamps").mkdir(parents=True)
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "fencepost_lamps" / "__init__.py").write_text("")
    (project / "fencepost_lamps" / "probe.py").write_text("def lamp_probe(*asked): return True")
    return project


def test_extra_packages_are_in_the_image_of_pods(build: ModuleType, lamps: Path) -> None:
    """The images of nodes that are made on it have them, too."""
    pod, reference = build.recipes(["reference"], "4.1.0", "python", "", [lamps])
    assert (pod.tag, pod.extra) == ("fencepost/pod", (lamps,))
    assert (reference.on, reference.extra) == (pod.tag, ())


@pytest.mark.tool
def test_the_folder_of_a_project_is_installed_without_what_it_requires(
    build: ModuleType, lamps: Path, tmp_path: Path
) -> None:
    context = tmp_path / "context"
    wheel = build.wheel_of(lamps, tmp_path)
    assert build.wheel_of(wheel, tmp_path) == wheel
    build.gather(context, (), [wheel], platform.machine())
    assert (context / "site" / "fencepost_lamps" / "probe.py").exists()


def test_a_changed_package_makes_another_image(build: ModuleType, lamps: Path) -> None:
    before = build.stamp_of(lamps)
    (lamps / "dist").mkdir()
    (lamps / "dist" / "old.whl").write_text("")
    assert build.stamp_of(lamps) == before
    (lamps / "fencepost_lamps" / "probe.py").write_text("def lamp_probe(*asked): return False")
    assert build.stamp_of(lamps) != before


def test_anything_but_a_wheel_or_a_project_is_refused(build: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match="is neither a wheel nor a folder with a pyproject"):
        build.extra_packages([str(tmp_path)])
    with pytest.raises(EnvironmentFailed, match="there is no"):
        build.extra_packages([str(tmp_path / "lamps.whl")])
