"""A good call of each function of definitions and of control flow, under odd arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tensorbow.ops.definition import OPS
from tests.arguments.calls_of_ops import x23
from tests.arguments.public_calls import Call


def _spec(inputs: Any, attrs: Any) -> Any:
    return tb.TensorSpec([2], tb.float32)


FLAGS = (
    "uniform_dtype",
    "stateful",
    "random",
    "replace",
    "sets_status",
    "exchange",
    "asynchronous",
    "keeps",
    "slow",
    "strings",
)


def _defined(**arguments: Any) -> None:
    """Defines an op, and forgets it again."""
    before = dict(OPS)
    try:
        tb.define_op(**arguments)
    finally:
        OPS.clear()
        OPS.update(before)


CALLS: Mapping[str, Call] = {
    "define_op": Call(
        lambda: {"name": "Walked", "spec": _spec, "gradient": tb.NOT_DIFFERENTIABLE, "kernel": print},
        sorts={
            "name": "text",
            **dict.fromkeys(("spec", "gradient"), "function"),
            **dict.fromkeys(("kernel", "unknown_dtypes", "host"), "function or none"),
            **dict.fromkeys(("inputs", "scoped", "state"), "list of texts"),
            **dict.fromkeys(("shape_inputs", "writes", "ignores", "alias"), "list"),
            **dict.fromkeys(FLAGS, "flag"),
            "attrs": "mapping or none",
            "update": "object or none",
            "row_update": "object or none",
            "fetched": "function or none",
            **dict.fromkeys(("doc", "why_cpu", "changes"), "text"),
            "flow": "fill",
        },
        target=lambda: _defined,
        names=("op",),
    ),
    # control flow
    "cond": Call(
        lambda: {"pred": tb.constant(True), "true_fn": lambda: x23(), "false_fn": lambda: x23()},
        sorts={
            "pred": "truth",
            **dict.fromkeys(("true_fn", "false_fn"), "branch"),
            **dict.fromkeys(("fn1", "fn2"), "anything"),
            "strict": "flag",
        },
    ),
    "case": Call(
        lambda: {"pred_fn_pairs": [(tb.constant(True), lambda: x23())], "default": lambda: x23()},
        sorts={
            "pred_fn_pairs": "object",
            "default": "branch or none",
            **dict.fromkeys(("exclusive", "strict"), "flag"),
        },
        takes={"default": frozenset({"function", "class"})},
    ),
    "TensorArray": Call(
        lambda: {"dtype": tb.float32, "size": 3},
        sorts={
            "size": "count",
            "clear_after_read": "flag or none",
            "element_shape": "static shape",
            **dict.fromkeys(("handle", "flow"), "nothing"),
            "tensor_array_name": "name",
            **dict.fromkeys(("dynamic_size", "infer_shape"), "flag"),
        },
    ),
    **{
        f"TensorArray.{method}": Call(
            lambda arguments=arguments: arguments,
            target=lambda method=method: getattr(tb.TensorArray(tb.float32, 3, element_shape=[1]), method),
            sorts={**dict.fromkeys(("index", "indices", "lengths"), "integers"), "value": "tensor"},
        )
        for method, arguments in {
            "read": {"index": 0},
            "split": {"value": [1.0, 2.0, 3.0], "lengths": [1, 1, 1]},
            "write": {"index": 0, "value": [1.0]},
            "gather": {"indices": [0]},
            "scatter": {"indices": [0], "value": [[1.0]]},
            "unstack": {"value": [[1.0]]},
            **{name: {} for name in ("stack", "concat", "size", "close")},
        }.items()
    },
    "map_fn": Call(
        lambda: {"fn": lambda a: a, "elems": x23()},
        sorts={
            "fn": "branch",
            "elems": "tensor",
            "dtype": "object or none",
            "parallel_iterations": "count",
            **dict.fromkeys(("back_prop", "swap_memory", "infer_shape"), "flag"),
        },
    ),
    **{
        call: Call(
            lambda: {"fn": lambda a, b: a, "elems": x23()},
            takes={"initializer": frozenset({"empty dict", "ragged list"})},  # a nest
            sorts={
                "fn": "branch",
                "elems": "tensor",
                "initializer": "tensor or none",
                "parallel_iterations": "count",
                **dict.fromkeys(("back_prop", "swap_memory", "infer_shape", "reverse"), "flag"),
            },
        )
        for call in ("foldl", "foldr", "scan")
    },
    "while_loop": Call(
        lambda: {
            "cond": lambda i: tb.less(i, 3),
            "body": lambda i: tb.add(i, 1),
            "loop_vars": [tb.constant(0)],
        },
        sorts={
            **dict.fromkeys(("cond", "body"), "branch"),
            "loop_vars": "tensor",
            "shape_invariants": "object or none",
            "parallel_iterations": "count",
            **dict.fromkeys(("back_prop", "swap_memory", "return_same_structure"), "flag"),
            "maximum_iterations": "count or none",
        },
        names=("less",),
    ),
    "run_reference_kernel": Call(
        lambda: {"definition": tb.reduce_sum(x23()).op.definition, "inputs": [np.ones(2)]},
        sorts={
            "definition": "object",
            "inputs": "tensors",
            "attrs": "mapping or none",
            "state": "mapping or none",
        },
        names=("sum",),
    ),
    "register_kernel": Call(
        lambda: {"definition": tb.no_op().definition, "kind": "none", "kernel": tb.Kernel(run=print)},
        sorts={"definition": "object", "kind": "text", "kernel": "object"},
    ),
}
