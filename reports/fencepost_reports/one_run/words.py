"""Columns of few texts, each a number with a dictionary: no text is compared row by row. Needs
pyarrow."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
from pyarrow import compute


def encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """The column as numbers and a dictionary."""
    whole = column.combine_chunks()
    if pa.types.is_dictionary(whole.type):
        return whole
    return whole.dictionary_encode()


def among(column: pa.ChunkedArray, words: Collection[str]) -> pa.Array:
    """Which rows have one of these texts."""
    found = encoded(column)
    wanted = compute.is_in(found.dictionary, pa.array(sorted(words), pa.string()))
    return wanted.take(found.indices)


def listed(column: pa.ChunkedArray) -> list[Any]:
    """The values of the rows; of equal texts in a dictionary there is only one."""
    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    found = encoded(column)
    words = found.dictionary.to_pylist()
    return [words[number] for number in found.indices.to_pylist()]
