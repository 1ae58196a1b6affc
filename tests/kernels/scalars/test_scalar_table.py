"""The NumPy form of every rule equals the op's reference kernel on the contract's samples."""

import numpy as np
import pytest

from tensorbow.errors import InternalError
from tensorbow.kernels.scalars import RULES, results_of, symbols
from tensorbow.kernels.scalars.expression import apply, select
from tensorbow.ops import elementwise_table as table
from tensorbow.ops.averaging import SmaDifference
from tensorbow.ops.elementwise_table import ELEMENTWISE
from tensorbow.ops.losses import SoftmaxCrossEntropyWithLogits
from tensorbow.specs import COMPILED, as_dtype, bool_, float32, float64, int32, int64, uncompiled
from tests.ops_contract.collection import all_samples, each, product_ops
from tests.ops_contract.harness import run_sample, same_bits, writable
from tests.ops_contract.sample import Sample, integers, normal
from tests.scalar_rig.numpy_form import to_numpy

SAMPLES = [s for s in all_samples() if s.op in RULES and not uncompiled(as_dtype(a.dtype) for a in s.inputs)]
# Formulas of their own, within units of the last place of the result (NumPy's logaddexp branches).
OWN_FORMULA = {"Softplus": 4}
UPDATES = [op for op in RULES if op.update is not None]


def by_rule(sample):
    """Outputs that are no alias, then written inputs, by the rule of the sample's op."""
    state = [np.asarray(sample.state[key]) for key in sample.op.state]
    arrays = [*sample.inputs, *state]
    dtypes = [as_dtype(a.dtype) for a in arrays]
    count = len(sample.inputs)
    results = results_of(sample.op, sample.complete_attrs, dtypes[:count], dtypes[count:])
    return to_numpy(results, arrays)


def by_kernel(sample):
    inputs = writable(sample)
    outputs = run_sample(sample, inputs)
    aliased = {output for output, _ in sample.op.alias}
    own = [array for index, array in enumerate(outputs) if index not in aliased]
    return [*own, *(inputs[index] for index in sample.op.writes)]


def assert_same(sample):
    with np.errstate(all="ignore"):
        actual, expected = by_rule(sample), by_kernel(sample)
    for mine, reference in zip(actual, expected, strict=True):
        assert mine.dtype == reference.dtype
        mine = np.broadcast_to(mine, reference.shape)  # SmaClear depends on nothing
        if sample.op.name in OWN_FORMULA:
            np.testing.assert_array_max_ulp(mine, reference, OWN_FORMULA[sample.op.name])
        elif not same_bits(np.ascontiguousarray(mine), reference):
            np.testing.assert_array_equal(mine, reference)  # 0 and -0 may differ


@each(SAMPLES)
@pytest.mark.sampled(35)
def test_numpy_form_equals_the_reference_kernel(sample):
    assert_same(sample)


def test_every_element_wise_op_has_a_rule():
    ops = product_ops()
    assert {name for name in ELEMENTWISE if ops[name] not in RULES} == {"Conj"}  # complex alone
    pointwise = {op for op in ops.values() if op.kernels.get("cpu") and op.kernels["cpu"].pointwise}
    assert {op.name for op in pointwise - set(RULES)} == set()
    assert {op for op in ops.values() if op.update is not None} <= set(RULES)


def test_every_rule_has_samples():
    assert set(RULES) == {sample.op for sample in SAMPLES}


CASES = [
    (name, dtype) for name, row in sorted(ELEMENTWISE.items()) for dtype in row.dtypes if dtype in COMPILED
]


@pytest.mark.parametrize(("name", "kind"), CASES, ids=lambda v: getattr(v, "name", v))
@pytest.mark.sampled(74)
def test_every_dtype(name, kind):
    row, dtype = ELEMENTWISE[name], kind.as_numpy_dtype
    if kind == bool_:
        arrays = [integers(7, 5, high=2).astype(bool), integers(7, 5, high=2, seed=1).astype(bool)]
        assert_same(Sample(product_ops()[name], tuple(arrays[: len(row.inputs)]), None))
        return
    if kind.is_floating:
        arrays = [normal(7, 5, dtype=dtype), normal(7, 5, dtype=dtype, seed=1)]
        arrays[0][0] = [np.nan, np.inf, -np.inf, 0, -0.0]
        arrays[1][1] = [np.nan, np.inf, -np.inf, 0, -0.0]
    else:
        low = 0 if kind.name == "uint8" else -9
        arrays = [integers(7, 5, low=low, dtype=dtype), integers(7, 5, low=1, dtype=dtype, seed=1)]
        limits = np.iinfo(dtype)
        arrays[0][0] = [limits.min, limits.max, limits.max - 1, limits.min + 1, 0]
        if name not in ("FloorDiv", "FloorMod"):
            arrays[1][0] = [limits.max, limits.min, limits.max, 1, limits.min]
    assert_same(Sample(product_ops()[name], tuple(arrays[: len(row.inputs)]), None))


@pytest.mark.parametrize("op", UPDATES, ids=lambda op: op.name)
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_updates_in_float64(op, decay):
    count, scalars = op.update[1] + 1, len(op.input_names) - op.update[1] - 1
    arrays = [np.abs(normal(7, 5, dtype=np.float64, seed=i)) + 2.0 for i in range(count)]
    given = [np.asarray(0.25 + i / 16) for i in range(scalars)]
    assert_same(Sample(op, (*arrays, *given), None, {"weight_decay": decay}))


def test_averaging_reads_the_step_scalars_each_time():
    results = results_of(SmaDifference, {}, [float32, float32], [float64, int64])
    w, z = normal(5), normal(5, seed=1)
    for alpha, status in ((0.25, 0), (0.5, 0), (0.5, 1)):
        (c,) = to_numpy(results, [w, z, np.float64(alpha), np.int64(status)])
        assert c.dtype == np.float32
        np.testing.assert_array_equal(c, 0 * w if status else np.float32(alpha) * (w - z))


def test_a_wrong_rule_is_found(monkeypatch):
    monkeypatch.setitem(RULES, table.Sub, RULES[table.Add])
    (sample,) = [s for s in SAMPLES if s.op is table.Sub and s.label == "vector"]
    with pytest.raises(AssertionError):
        assert_same(sample)


def test_an_op_without_a_rule_is_named():
    with pytest.raises(InternalError, match="SoftmaxCrossEntropyWithLogits has no rule"):
        results_of(SoftmaxCrossEntropyWithLogits, {}, [float32, float32], ())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda f, i, b: f + i, "add of float32, int32"),
        (lambda f, i, b: b + b, "add of bool, bool"),
        (lambda f, i, b: i / i, "divide of int32, int32"),
        (lambda f, i, b: apply("logical_not", f), "logical_not of float32"),
        (lambda f, i, b: apply("gamma", f), "no such operator"),
        (lambda f, i, b: apply("add", 1, 2), "at least one operand"),
        (lambda f, i, b: select(f, f, f), "expected a bool condition"),
        (lambda f, i, b: select(b, f, i), "between float32 and int32"),
        (lambda f, i, b: f if f < 0 else i, "use select"),
    ],
)
def test_expressions_of_wrong_dtypes_are_refused(build, message):
    with pytest.raises(InternalError, match=message):
        build(*symbols([float32, int32, bool_]))
