"""What the runs of a soak come to."""

from __future__ import annotations

from fencepost.campaigns.soak import NO_FAULT, Soaked, SoakRun


def run_of(seed: int, faults: int, trouble: str = "") -> SoakRun:
    return SoakRun(
        seed=seed,
        run=f"run-{seed}",
        violated={},
        known={},
        unknown={},
        faults=faults,
        without_receipt=0,
        trouble=trouble,
    )


def test_faults_that_were_wanted_and_never_injected_leave_a_soak_undecided() -> None:
    quiet = [run_of(1, 0), run_of(2, 0)]
    assert Soaked(with_faults=True, runs=quiet).undecided() == [NO_FAULT]
    assert Soaked(with_faults=False, runs=quiet).undecided() == []
    assert Soaked(with_faults=True, runs=[*quiet, run_of(3, 1)]).undecided() == []
    troubled = [run_of(1, 0, "its disk was full")]
    assert Soaked(with_faults=True, runs=troubled).undecided() == ["seed 1", NO_FAULT]
