"""What is secret by its name, and how it is kept out of all that a run keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

REDACTED: Final = "<redacted>"
# By the name, since a value tells nothing. `key` and `users` only as the last word of a name: a
# setting such as `key.serializer` is none.
_SECRET: Final = re.compile(
    r"passw|passphrase|secret|token|credential|private|jaas|(^|[._-])(users|key)$"
)


def is_secret(name: str) -> bool:
    """Whether a setting, a variable or an option of that name has a secret as its value."""
    return _SECRET.search(name.lower()) is not None


def redacted(settings: Mapping[str, str]) -> Mapping[str, str]:
    """The settings, without the values of those that are secrets by their names."""
    return {name: REDACTED if is_secret(name) else value for name, value in settings.items()}


def secrets_in(argv: Sequence[str]) -> Iterable[str]:
    """The values of options that are secrets by their names: `--password=x`, `--password x`."""
    for word in argv:
        name, equals, value = word.partition("=")
        if equals and name.startswith("-") and is_secret(name.lstrip("-")):
            yield value
    for option, value in pairwise(argv):
        bare = option.startswith("-") and "=" not in option
        if bare and is_secret(option.lstrip("-")) and not value.startswith("-"):
            yield value


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text without any of these values; the longest goes first, since one may begin another."""
    for value in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(value, REDACTED)
    return text
