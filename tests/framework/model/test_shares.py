"""How sure a counted share is."""

from __future__ import annotations

import pytest

from fencepost.model.shares import interval


def test_of_no_trial_a_share_is_anything() -> None:
    assert interval(0, 0) == (0.0, 1.0)


def test_the_interval_is_wilsons() -> None:
    """The figures are those of Wilson's formula with 1.96, as tables of it have them."""
    assert interval(0, 10) == pytest.approx((0.0, 0.278), abs=5e-4)
    assert interval(5, 10) == pytest.approx((0.237, 0.763), abs=5e-4)
    assert interval(10, 10) == pytest.approx((0.722, 1.0), abs=5e-4)


def test_more_comparisons_widen_it_and_more_trials_narrow_it() -> None:
    one, many, longer = interval(5, 10), interval(5, 10, 100), interval(500, 1000, 100)
    assert many.low < one.low < longer.low < 0.5 < longer.high < one.high < many.high
