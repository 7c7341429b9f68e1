"""Loads the tooling of this repository's own tests: `tests/tooling`.

`fencepost run` in another folder imports this file, too, because it is above the suites of an
editable installation. There the repository's configuration, which puts the tooling on the path, is
not in use, and the tooling stays out.
"""

from importlib.util import find_spec

pytest_plugins = ["real_tests", "outcomes", "scheduling"] if find_spec("real_tests") else []
