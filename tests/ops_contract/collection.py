"""All ops of the product, and all samples: what the contract walks."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import tensorbow.ops
import tests.ops_contract
from tensorbow.graph import OpDef
from tensorbow.ops.definition import OPS
from tests.ops_contract.sample import Sample


@cache
def product_ops() -> dict[str, OpDef]:
    """Every op the library defines, by name (tests of user ops define more)."""
    for module in pkgutil.walk_packages(tensorbow.ops.__path__, "tensorbow.ops."):
        importlib.import_module(module.name)
    return {name: op for name, op in OPS.items() if op.spec.__module__.startswith("tensorbow.")}


@cache
def all_samples() -> tuple[Sample, ...]:
    """The samples of every `tests/ops_contract/samples_*.py`."""
    names = [m.name for m in pkgutil.iter_modules(tests.ops_contract.__path__)]
    found: list[Sample] = []
    for name in sorted(n for n in names if n.startswith("samples_")):
        found.extend(importlib.import_module(f"tests.ops_contract.{name}").SAMPLES)
    return tuple(found)
