"""Values as columns: Arrow types of the classes that rows are made of."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import msgspec
import pyarrow as pa
from msgspec import Struct

_SCALARS: dict[object, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    float: pa.float64(),
}


def column_type(annotation: Any) -> pa.DataType | None:
    """The column type of a field: a scalar, words, a row, or a tuple of one of them; None: none.

    Words are a `Literal` of texts, or an enum of them.
    """
    if get_origin(annotation) is Literal:
        words = all(isinstance(word, str) for word in get_args(annotation))
        return pa.string() if words else None
    if get_origin(annotation) is tuple:
        arguments = get_args(annotation)
        if len(arguments) != 2 or arguments[1] is not Ellipsis:
            return None
        element = column_type(arguments[0])
        return None if element is None else pa.list_(pa.field("element", element, nullable=False))
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return pa.struct(list(schema_of(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, str):
        return pa.string()
    return _SCALARS.get(annotation)


def schema_of(row: type[Struct]) -> pa.Schema:
    """The columns of a table with such rows, one a field, never null.

    Raises TypeError for a field that has no column type.
    """
    fields = []
    for field in msgspec.structs.fields(row):
        found = column_type(field.type)
        if found is None:
            raise TypeError(f"{row.__name__}.{field.name} fits no column")
        fields.append(pa.field(field.name, found, nullable=False))
    return pa.schema(fields)
