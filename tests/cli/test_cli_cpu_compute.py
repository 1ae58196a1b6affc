"""Precision of products on CPU devices: where it is set, what it changes, and processors that lack it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import scheduler
import tensorbow as tb
from scheduler.training.configuration.precision import PrecisionSetting
from tensorbow.devices import CpuDevice, get_device
from tensorbow.errors import FailedPreconditionError
from tensorbow.kernels import ReferenceBackend, backend_for, register_backend
from tensorbow.kernels.rounded_products import round_to_bfloat16


@pytest.fixture(params=["reference", "native"])
def backend(request, monkeypatch):
    before = backend_for(get_device("/cpu:0"))
    made = ReferenceBackend()
    if request.param == "native":
        pytest.importorskip("llvmlite")
        from tensorbow.kernels.native.backend import NativeBackend

        monkeypatch.setenv("TENSORBOW_EMULATE_BF16", "1")
        made = NativeBackend()
    register_backend("cpu", made)
    yield made
    tb.configure_cpus()
    register_backend("cpu", before)


def rounded(array):
    result = np.empty_like(array)
    round_to_bfloat16(array, result)
    return result


def test_sessions_round_the_operands_of_products_alone(backend):
    a, b = np.random.default_rng(0).normal(size=(2, 6, 6)).astype(np.float32)
    x = tb.placeholder(tb.float32, [6, 6])
    results = {}
    for compute in ("bf16", "fp32"):
        tb.configure_cpus(compute=compute)
        with tb.Session() as session:
            results[compute] = session.run([tb.matmul(x, b), x * b], {x: a})
            text = str(session.explain(tb.matmul(x, b), {x: a}))
        assert ("operands rounded to bfloat16, sums and result in float32" in text) == (compute == "bf16")
        assert ("operands of matmuls and convolutions in bfloat16" in text) == (compute == "bf16")
    np.testing.assert_allclose(results["bf16"][0], rounded(a) @ rounded(b), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(results["fp32"][0], a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(results["bf16"][1], a * b)


def test_a_step_keeps_the_precision_that_it_was_compiled_with(backend):
    a = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
    x = tb.placeholder(tb.float32, [5, 5])
    square = tb.matmul(x, x)
    tb.configure_cpus(compute="bf16")
    with tb.Session() as session:
        before = session.run(square, {x: a})
        tb.configure_cpus(compute="fp32")
        np.testing.assert_array_equal(session.run(square, {x: a}), before)


@pytest.mark.slow
def test_a_run_computes_in_bf16_and_gives_the_setting_back(backend):
    run = {"batch_size": 8, "max_seconds": 60.0, "epochs": 1, "replicas": 2, "seed": 3}
    accuracies = {
        compute: scheduler.fit("logreg", "digits", compute=compute, **run).result.test_accuracy
        for compute in ("bf16", "fp32")
    }
    assert abs(accuracies["bf16"] - accuracies["fp32"]) < 0.05
    assert "compute" not in vars(get_device("/cpu:0"))
    assert backend_for(get_device("/cpu:0")) is backend


@pytest.mark.sampled(1)
def test_explain_says_the_precision(backend, call):
    rounding = backend.computing("bf16")
    assert f"  kernels: {rounding.title}\n" in call("explain", "logreg", "--compute", "bf16").out
    assert "bfloat16" not in call("explain", "logreg").out
    ignored = "tensorbow: --compute is ignored: CPUs have no tf32, and compute in fp32\n"
    assert call("explain", "logreg", "--compute", "tf32").err == ignored
    tuned = call("tune", "logreg", "--compute", "tf32", "--max-replicas", 1, "--max-seconds", 0.1)
    assert tuned.err.startswith(ignored)


def test_the_bits_of_results_depend_on_it(backend):
    device = get_device("/cpu:0")
    facts = [
        backend.computing(compute).made_with(device)["precision"] for compute in ("fp32", "bf16", "tf32")
    ]
    assert facts == ["fp32", "bf16", "fp32"]


def test_a_processor_without_it_refuses(backend, monkeypatch, call):
    if type(backend) is ReferenceBackend:
        pytest.skip("NumPy rounds on every processor")
    older = type(backend)(replace(backend.target, features="+avx512f"))
    register_backend("cpu", older)
    assert older.computing("bf16").title.endswith(
        "operands of matmuls and convolutions in bfloat16 (emulated)"
    )
    older = type(backend)(replace(backend.target, features="+avx512f"))
    register_backend("cpu", older)
    monkeypatch.setenv("TENSORBOW_EMULATE_BF16", "0")
    match = (
        r"compute bf16: expected a processor with AVX-512 BF16, got .*; compute in fp32, or set TENSORBOW_EM"
    )
    with pytest.raises(FailedPreconditionError, match=match):
        tb.configure_cpus(compute="bf16")
    assert CpuDevice.compute == "fp32"
    device = get_device("/cpu:0")
    with pytest.raises(FailedPreconditionError, match=match):
        PrecisionSetting([device], "bf16")
    assert device.compute == "fp32"
    line = call("train", "logreg", "--compute", "bf16").line
    assert "compute bf16: expected a processor with AVX-512 BF16, got " in line
