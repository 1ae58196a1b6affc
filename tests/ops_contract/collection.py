"""All ops of the product and all samples, for the contract tests."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import zlib
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

import tensorbow.ops
import tests.ops_contract
from tensorbow.graph import OpDef
from tensorbow.ops.definition import OPS
from tests.ops_contract.sample import Sample


@cache
def product_ops() -> dict[str, OpDef]:
    """Ops of the library by name, without those defined by tests."""
    for name in ("tensorbow.cluster.transfer_ops", "tensorbow.string_ops.packing"):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(tensorbow.ops.__path__, "tensorbow.ops."):
        importlib.import_module(module.name)
    return {name: op for name, op in OPS.items() if op.spec.__module__.startswith("tensorbow.")}


@cache
def all_samples() -> tuple[Sample, ...]:
    """Samples of every `tests/ops_contract/samples_*.py`."""
    names = [m.name for m in pkgutil.iter_modules(tests.ops_contract.__path__)]
    found: list[Sample] = []
    for name in sorted(n for n in names if n.startswith("samples_")):
        found.extend(importlib.import_module(f"tests.ops_contract.{name}").SAMPLES)
    return tuple(found)


def each(
    samples: Iterable[Sample], few: int | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Parametrises a test by op; it runs all samples of the op, since there are thousands of short ones.

    few: samples of each op in the default suite, for slow tests; all others run with `-m slow`.
    """
    of_ops: dict[str, list[Sample]] = {}
    for sample in samples:
        of_ops.setdefault(sample.op.name, []).append(sample)
    cases: list[Any] = []
    for name, members in of_ops.items():
        ordered = sorted(members, key=lambda sample: zlib.crc32(sample.id.encode()))
        chosen, others = ordered[:few], ordered[len(ordered[:few]) :]
        cases.append(pytest.param(chosen, id=name))
        if others:
            cases.append(pytest.param(others, id=f"{name} others", marks=pytest.mark.slow))

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(sample: list[Sample], **arguments: Any) -> None:
            for one in sample:
                try:
                    test(one, **arguments)
                except Exception as error:
                    raise AssertionError(f"sample {one.id}: {error}") from error

        return pytest.mark.parametrize("sample", cases)(run)

    return decorate
