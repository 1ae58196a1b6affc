"""`py_func`: a Python function of NumPy arrays as an operation (TensorFlow 1's tf.py_func)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.array_likes import string_array
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall, as_tensor
from tensorbow.kinds import DTYPE, Flag, Function, Items, Kind, Name, checked
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec


def _read_results(value: Any) -> Any:
    return [DTYPE.read(each) for each in value] if isinstance(value, (list, tuple)) else DTYPE.read(value)


Results: TypeAlias = Annotated[Any, Kind("a dtype or a list of dtypes", _read_results)]


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    return [TensorSpec(None, dtype) for dtype in attrs["Tout"]]


def _call(call: HostCall) -> list[Array]:
    dtypes = call.attrs["Tout"]
    results = call.attrs["func"](*(np.array(each) if each.ndim else each[()] for each in call.inputs))
    if not dtypes:
        return []
    given = list(results) if isinstance(results, (list, tuple)) else [results]
    if len(given) != len(dtypes):
        raise InvalidArgumentError(
            f"the function returned {len(given)} values, expected {len(dtypes)} as in Tout"
        )
    arrays = []
    for index, (value, dtype) in enumerate(zip(given, dtypes, strict=True)):
        if dtype.is_string:
            arrays.append(string_array(value))
            continue
        array = np.asarray(value)
        if isinstance(value, (bool, int, float)):  # Python's own numbers have no dtype
            array = array.astype(dtype.as_numpy_dtype)
        if array.dtype != dtype.as_numpy_dtype:
            raise InvalidArgumentError(
                f"value {index} that the function returned is of {array.dtype}, expected {dtype.name} as in "
                "Tout; convert it by astype"
            )
        arrays.append(array)
    return arrays


_define = partial(
    define_op,
    spec=_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("*inputs",),
    attrs={"func": REQUIRED, "Tout": REQUIRED},
    strings=True,
    host=_call,
    slow=True,
)
PyFunc = _define(
    "PyFunc",
    attrs={"func": REQUIRED, "Tout": REQUIRED, "object": None},
    changes="object",
    stateful=True,
    doc="A Python function, called in each step that needs it.",
)
PyFuncStateless = _define("PyFuncStateless", doc="A Python function whose results only its inputs determine.")


@checked
def py_func(
    func: Function,
    inp: Items,
    Tout: Results,  # noqa: N803 - TensorFlow's name
    stateful: Flag = True,
    name: Name = None,
) -> Any:
    """The results of a Python function, called with the values of tensors as NumPy arrays.

    func: takes an array, or for rank 0 a NumPy scalar, for each tensor of `inp`; returns a value for each
        dtype of `Tout`. The arrays are its own. Strings come as `bytes`, and may be given back as texts, too.
    Tout: a dtype, or a list of them, for which a list is returned; an empty one for an operation without
        results. stateful: False if equal inputs give equal results; then iterations of a loop may call it at
        the same time.

    It may be called by another thread than the session's: functions of one step that need not wait for each
    other's results run at the same time, unless `ConfigProto(inter_op_parallelism_threads=1)`. Order those
    that share data by `tb.control_dependencies`.

    The shapes of the results are unknown: use `set_shape`. There is no gradient, and the graph cannot be
    saved. The step runs in the dynamic mode; replicas call functions with effects one after the other.
    Raises, when it runs, InvalidArgumentError for results of other numbers or dtypes, and for exceptions of
    the function, which are the cause.
    """
    definition = PyFunc if stateful else PyFuncStateless
    dtypes = tuple(Tout) if isinstance(Tout, list) else (Tout,)
    made = definition(*(as_tensor(each) for each in inp), func=func, Tout=dtypes, name=name)
    if isinstance(made, tuple):
        return list(made)
    return [made] if dtypes and isinstance(Tout, list) else made
