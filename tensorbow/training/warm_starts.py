"""`warm_start`: initial values of a checkpoint, also where words have other numbers than there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.files import read_file
from tensorbow.graph import Tensor, get_default_graph
from tensorbow.kinds import (
    AsPath,
    Count,
    Function,
    Mapped,
    Positive,
    called,
    check_fields,
    checked,
    refuse,
    whole,
)
from tensorbow.missing_names import listed
from tensorbow.ops.conditions import where
from tensorbow.partitioned_variables import PartitionedVariable
from tensorbow.specs import Array, compatible, render_dims
from tensorbow.training.checkpoint_values import load_checkpoint
from tensorbow.variables import Variable, global_variables, trainable_variables

LONGEST = 1 << 30  # bytes of a vocabulary
Lines: TypeAlias = Annotated[int, whole(-1)]
Side: TypeAlias = Annotated[int, whole(0, 1)]


@dataclass(frozen=True)
class VocabInfo:
    """The words whose numbers the rows, or the columns, of a variable have, now and in a checkpoint.

    new_vocab, old_vocab: text files with a word in each line. new_vocab_size, old_vocab_size: numbers of
    their lines to use; -1 for all of the old ones. num_oov_buckets: further rows, of words that the
    vocabulary lacks. backup_initializer: a function of shape and dtype, which makes the rows that the
    checkpoint lacks; None for zeros. axis: 0 for rows, 1 for columns.
    """

    new_vocab: AsPath
    new_vocab_size: Positive
    num_oov_buckets: Count
    old_vocab: AsPath
    old_vocab_size: Lines = -1
    backup_initializer: Function | None = None
    axis: Side = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.old_vocab_size == 0:
            raise refuse("VocabInfo", "old_vocab_size", "a count, or -1 for all", self.old_vocab_size)

    def rows(self) -> Array:
        """Rows of the checkpoint from which the rows of the variable come, int64 [rows]; -1 for none."""
        new = _words(self.new_vocab, self.new_vocab_size)
        number_of: dict[bytes, int] = {}
        for number, word in enumerate(_words(self.old_vocab, self.old_vocab_size)):
            number_of.setdefault(word, number)
        return np.array([number_of.get(word, -1) for word in new] + [-1] * self.num_oov_buckets, np.int64)


def _words(path: AsPath, count: int) -> list[bytes]:
    words = read_file(path, LONGEST).splitlines()
    if count > len(words):
        raise InvalidArgumentError(f"VocabInfo: {path}: expected {count} lines, got {len(words)}")
    return words if count == -1 else words[:count]


@checked
def warm_start(
    ckpt_to_initialize_from: AsPath,
    vars_to_warm_start: Any = ".*",
    var_name_to_vocab_info: Mapped | None = None,
    var_name_to_prev_var_name: Mapped | None = None,
) -> None:
    """Makes initializers of variables give them the values of a checkpoint, as in fine-tuning.

    ckpt_to_initialize_from: as for `load_checkpoint`; it is read now. vars_to_warm_start: a regular
    expression, which the beginnings of names of trainable variables match; or a list of such expressions, for
    all global variables; or of variables; or None, for those of `var_name_to_vocab_info` only.
    var_name_to_vocab_info: `tb.train.VocabInfo` by the names of variables whose rows have other words there.
    var_name_to_prev_var_name: names in the checkpoint, by those of the graph, where they differ.

    Raises NotFoundError for a variable that one of both lacks, InvalidArgumentError for another shape.
    """
    reader = load_checkpoint(ckpt_to_initialize_from)
    vocabularies, previous = dict(var_name_to_vocab_info or {}), dict(var_name_to_prev_var_name or {})
    chosen = list(_chosen(vars_to_warm_start, vocabularies))
    names = {_full_name(variable) for variable in chosen}
    unknown = sorted(map(str, (vocabularies.keys() | previous.keys()) - names))
    if unknown:
        raise NotFoundError(
            f"warm_start: {listed(unknown)} of var_name_to_vocab_info or var_name_to_prev_var_name is not "
            f"among the variables to start: {listed(sorted(names)) or 'none'}"
        )
    values: dict[str, tuple[Array, Any]] = {}
    for variable in chosen:
        name = _full_name(variable)
        if name not in values:
            array = reader.get_tensor(str(previous.get(name, name)))
            values[name] = _moved(array, vocabularies[name], name) if name in vocabularies else (array, None)
        array, missing = values[name]
        info = variable.save_slice_info
        if info is not None and array.shape == info.full_shape:
            array, missing = array[info.index], None if missing is None else missing[info.index]
        if not compatible(variable.shape.dims, array.shape):
            raise InvalidArgumentError(
                f"warm_start: {variable.name} is {variable.shape}, but {previous.get(name, name)} in "
                f"{reader.path} is {render_dims(array.shape)}; give a VocabInfo, or leave the variable out"
            )
        variable._starts_with(_completed(array, missing, variable, vocabularies.get(name)))


def _completed(array: Array, missing: Array | None, variable: Variable, info: VocabInfo | None) -> Any:
    """The values, with those of the backup initialiser where the checkpoint has none."""
    if missing is None or info is None or info.backup_initializer is None or not missing.any():
        return array
    with variable.graph.as_default():
        made: Tensor = called(
            *(info.backup_initializer, list(array.shape), variable.dtype),
            op="VocabInfo",
            argument="backup_initializer",
            expected="a function of shape and dtype",
        )
        return where(np.broadcast_to(missing, array.shape), made, array.astype(variable.dtype.as_numpy_dtype))


def _moved(array: Array, info: Any, name: str) -> tuple[Array, Array]:
    """An array whose rows are those of the new vocabulary, and a mask of those that the old one lacks."""
    if not isinstance(info, VocabInfo):
        raise refuse("warm_start", f"var_name_to_vocab_info[{name!r}]", "a tb.train.VocabInfo", info)
    rows = info.rows()
    if array.ndim <= info.axis or (rows.size and rows.max() >= array.shape[info.axis]):
        raise InvalidArgumentError(
            f"warm_start: {name} in the checkpoint is {render_dims(array.shape)}: expected a row along axis "
            f"{info.axis} for each of the {rows.max() + 1} words in {info.old_vocab}"
        )
    missing = (rows < 0).reshape([-1 if axis == info.axis else 1 for axis in range(array.ndim)])
    moved = np.where(missing, np.zeros((), array.dtype), np.take(array, np.maximum(rows, 0), info.axis))
    return moved, np.broadcast_to(missing, moved.shape)


def _full_name(variable: Variable) -> str:
    info = variable.save_slice_info
    return variable.op.name if info is None else info.full_name


def _chosen(wanted: Any, vocabularies: Mapping[Any, Any]) -> Iterator[Variable]:
    if isinstance(wanted, str):
        yield from _matching([wanted], trainable_variables())
        return
    if wanted is None:
        yield from (v for v in global_variables() if _full_name(v) in vocabularies)
        return
    if not isinstance(wanted, Sequence):
        raise refuse("warm_start", "vars_to_warm_start", "a regular expression, or a list", wanted)
    if all(isinstance(each, str) for each in wanted):
        yield from _matching(wanted, global_variables())
        return
    for each in wanted:
        for variable in each if isinstance(each, PartitionedVariable) else [each]:
            if not isinstance(variable, Variable) or variable.graph is not get_default_graph():
                raise refuse("warm_start", "vars_to_warm_start", "variables of the graph", each)
            yield variable


def _matching(patterns: Sequence[str], variables: Sequence[Variable]) -> list[Variable]:
    try:
        compiled = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise InvalidArgumentError(f"warm_start: vars_to_warm_start: {error}") from None
    found = [v for v in variables if any(pattern.match(_full_name(v)) for pattern in compiled)]
    if not found:
        raise NotFoundError(
            f"warm_start: vars_to_warm_start: no variable matches {listed(patterns)}; make the model before"
        )
    return found
