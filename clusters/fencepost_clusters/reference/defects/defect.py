"""A defect: its description, and the policies that it replaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost import Defect
from fencepost_clusters.reference.core.policies import Policies


@dataclass(frozen=True, slots=True)
class PolicyDefect:
    """A defect as the framework describes it, and the policies of a node that has it."""

    defect: Defect
    replace: Callable[[Policies], Policies]
