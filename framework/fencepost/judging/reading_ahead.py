"""Reads ahead in a thread: pyarrow reads and decodes beside the code of Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

Of = TypeVar("Of")
Made = TypeVar("Made")


class Ahead(Protocol):
    """Makes a value of each item, in their order; the next one while the last is used."""

    def __call__(self, make: Callable[[Of], Made], each: Iterable[Of]) -> Iterator[Made]: ...


@contextmanager
def reading_ahead() -> Iterator[Ahead]:
    """One thread that makes values until the block ends.

    So a file is read by one thread at a time, also if several sequences are made of it. The thread
    does not survive a fork, and no block of ours forks. What `make` raises is raised to the one
    that takes the value.
    """
    with ThreadPoolExecutor(1) as thread:

        def made(make: Callable[[Of], Made], each: Iterable[Of]) -> Iterator[Made]:
            coming: Future[Made] | None = None
            for one in each:
                now, coming = coming, thread.submit(make, one)
                if now is not None:
                    yield now.result()
            if coming is not None:
                yield coming.result()

        yield made
