"""What a program said when it ended: the one line of its log that tells the most.

A log rarely ends with its reason. A stack follows the error that it belongs to, a runtime adds
hints that are the same for every failure, a usage text follows the option that was wrong, and a
server that stops goes on to log what it closes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MOST = 300
"""The most characters that are quoted of a line."""
_NOISE = re.compile(
    r"""
    \s* $                                                   # nothing
    | \s* at \s .* \) $                                     # a frame of Java
    | \s* \.\.\. \s \d+ \s (more | common \s frames)        # frames of Java that are left out
    | Picked \s up \s | NOTE: \s Picked \s up \s            # a JVM names its variables
    | Error: \s Could \s not \s create \s the \s Java
    | Error: \s A \s fatal \s exception \s has \s occurred
    | FATAL \s ERROR \s in \s native \s method
    | \*\*\* \s java\.lang\.instrument
    | \[ERROR\] \s* ( $ | -> \s | \[Help | To \s see \s the | Re-run \s Maven | For \s more )
    | goroutine \s \d+ \s | created \s by \s | exit \s status \s
    | \s+ \S+ \.(go|s) : \d+                                # a frame of Go, and its function
    | [\w./*()-]+ \( [^()]* \) $
    | r[a-z0-9]+ \s+ 0x[0-9a-f]+ $ | [cfg]s \s+ 0x[0-9a-f]+ $
    | note: \s run \s with \s `RUST_BACKTRACE
    """,
    re.VERBOSE,
)
_INFORMATION = re.compile(r'\b(TRACE|DEBUG|INFO|NOTICE)\b|"level":"(debug|info)"')
_WARNING = re.compile(r'\b(WARN|WARNING)\b|VM warning: |"level":"warn(ing)?"')
_HEAD = 80
"""Where in a line its level is looked for, in characters from its beginning."""
_ENCODED_BREAK = re.compile(r"(?:\\r)?\\n(?=\t|Caused by: |Suppressed: |$)")
"""A line break within a stack that a logger has written as one line."""
_USAGE = re.compile(
    r"^usage\b[^\n]*:[^\n]*(\n[ \t][^\n]*|\n(?=\n|$))*", re.IGNORECASE | re.MULTILINE
)
"""How a program is called, which it prints beside the error of a bad option: a line that says so,
and those below it that are indented or blank."""
_STAMP = re.compile(r"@\d+ ")


def last_words(text: str) -> str:
    """The last meaningful line of what a program printed, shortened; empty if there is none.

    Blank lines, frames of stacks and hints of a runtime mean nothing. A line of the level INFO or
    lower, or else a warning, is taken only if there is nothing but those; one of a usage text only
    if there is nothing but that.
    """
    best, rank = "", -1
    # Without the usage text first: it follows the error of a bad option, and would hide it.
    for line in telling_lines(_USAGE.sub("", text)) or telling_lines(text):
        of_it = _rank(line[:_HEAD])
        # The last line of the best rank: of two errors the later one is what ended the program.
        if of_it >= rank:
            best, rank = line, of_it
    words = " ".join(_STAMP.sub("", best, count=1).split())
    return words if len(words) <= _MOST else f"{words[: _MOST - 3]}..."


def telling_lines(text: str) -> Sequence[str]:
    """The lines that are not blank, no frame of a stack, and no hint of a runtime."""
    return [line for line in _ENCODED_BREAK.sub("\n", text).splitlines() if not _NOISE.match(line)]


def _rank(head: str) -> int:
    if _INFORMATION.search(head):
        return 0
    return 1 if _WARNING.search(head) else 2
