"""Lookup of rows in a table that is cut into shards, each on a device of its own (OSDI 2016, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, get_default_graph
from tensorbow.ops.arrays import expand_dims
from tensorbow.ops.elementwise import (
    add,
    divide,
    equal,
    floordiv,
    less,
    maximum,
    minimum,
    mod,
    multiply,
    sqrt,
    square,
    subtract,
)
from tensorbow.ops.indexing import NO_ROW, GatherV2
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.specs import int32, int64


def lookup_in_shards(shards: Sequence[Any], ids: Any, strategy: str) -> Tensor:
    """The rows `ids` of a table, gathered where its shards are; each sends as many rows as there are ids.

    strategy: "mod": row i is in shard i mod n; "div": shards have neighbouring rows, the first ones one more.
    """
    tables = [as_tensor(shard) for shard in shards]
    wanted = as_tensor(ids)
    if wanted.dtype.is_integer and wanted.dtype not in (int32, int64):
        wanted = cast(wanted, int64)  # others might wrap around below
    total = _rows_of(tables, strategy)
    count = len(tables)
    if strategy == "mod":
        owners, places = mod(wanted, count), floordiv(wanted, count)
    else:
        each, more = divmod(total, count)
        owners = maximum(floordiv(wanted, each + 1), floordiv(subtract(wanted, more), max(each, 1)))
        owners = minimum(maximum(owners, 0), count - 1)  # whose gather refuses ids beyond the table
        places = subtract(wanted, add(multiply(owners, each), minimum(owners, more)))
    # An owned place -1 would pass for no row.
    places = select(less(wanted, 0), subtract(wanted, 1), places)
    found: Tensor | None = None
    for number, (shard, table) in enumerate(zip(shards, tables, strict=True)):
        with get_default_graph().colocate_with(shard if hasattr(shard, "op") else table):
            mine = equal(owners, number)
            own = GatherV2(table, select(mine, places, NO_ROW), allow_unused=True)
        if found is None:
            found = own
            continue
        for _ in range(len(table.shape) - 1):
            mine = expand_dims(mine, -1)
        found = select(mine, own, found)
    return as_tensor(found)


def with_norms_up_to(max_norm: Any, rows: Tensor, ids: Tensor) -> Tensor:
    """Rows [*ids, ...] of which those of a greater 2-norm are scaled to `max_norm`; of known ranks."""
    if rows.shape.ndims is None or ids.shape.ndims is None:
        raise InvalidArgumentError(
            f"embedding_lookup: max_norm needs params and ids of known ranks, got rows {rows.spec} of ids "
            f"{ids.spec}; give the placeholders shapes"
        )
    limit = as_tensor(max_norm, rows.dtype)
    squares = reduce_sum(square(rows), list(range(ids.shape.ndims, rows.shape.ndims)), keepdims=True)
    return divide(multiply(rows, limit), sqrt(maximum(square(limit), squares)))


def _rows_of(tables: Sequence[Tensor], strategy: str) -> int:
    """The rows of all shards. Raises InvalidArgumentError unless they are parts of one table."""
    rows = [table.shape[0] if table.shape.ndims else None for table in tables]
    total = sum(extent or 0 for extent in rows)
    each, more = divmod(total, len(tables))
    expected = [each + (number < more) for number in range(len(tables))]
    like = {(table.dtype.name, str(table.shape[1:])) for table in tables if table.shape.ndims}
    if None in rows or len(like) != 1 or list(rows) != expected:
        raise InvalidArgumentError(
            f"embedding_lookup: params: expected the shards of a table, equal in dtype and width, with "
            f"{', '.join(map(str, expected))} rows (strategy {strategy!r}), got "
            f"{', '.join(str(table.spec) for table in tables)}; cut the rows of the table so"
        )
    return total
