"""Loads the tooling of this repository's own tests: `tests/tooling`."""

pytest_plugins = ["real_tests", "outcomes"]
