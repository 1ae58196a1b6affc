"""Compiles LLVM IR to callable functions: optimised for the target, cached on disk as object code."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite import ir

from tensorbow.errors import InternalError
from tensorbow.kernels.binary_cache import keep_binary, kept_binary
from tensorbow.kernels.native.codegen import vector_math
from tensorbow.kernels.native.codegen.target import Target

Call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)  # releases the interpreter lock
OPTIMIZATION = 2
SUFFIX = ".o"


@cache
def _initialize() -> None:
    """Initialises LLVM, and registers the addresses of the C functions that generated code calls."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = ctypes.CDLL("ucrtbase" if os.name == "nt" else None)  # None: Python's own
    for name in (*vector_math.LIBRARY, *(f"{name}f" for name in vector_math.LIBRARY)):
        function = getattr(library, name, None)
        if function is not None:  # if it is missing, LLVM reports it at its use
            llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)


class NativeCode:
    """The compiled functions of a module; their argument is the array of base addresses.

    They return -1, or the number of the call that refused its input and ended the run.
    """

    def __init__(self, engine: Any):
        self._engine = engine  # owns the code

    def address(self, name: str) -> int:
        """Address of a function, for other code; invalid after this object is gone."""
        address: int = self._engine.get_function_address(name)
        return address

    def function(self, name: str) -> Callable[[int], int]:
        """A function by name; invalid after this object is gone."""
        call: Callable[[int], int] = Call(self.address(name))
        return call


def compile_module(
    module: ir.Module, target: Target, folder: Path | None, key: str | None = None
) -> NativeCode:
    """Code of a module, from the cache `folder` or compiled; a damaged cache file is rebuilt.

    key: its key in the cache; by default the module's text. Thread-safe. Raises InternalError with LLVM's
    message for an invalid module.
    """
    text = str(module)
    key = text if key is None else key
    kept = kept_code(key, target, folder)
    if kept is not None:
        return kept
    code = _compiled(text, target)
    keep_binary(folder, _depends_on(key, target), SUFFIX, code)
    return _linked(code, target)


def kept_code(key: str, target: Target, folder: Path | None) -> NativeCode | None:
    """The code that `compile_module` cached under a key; None if there is none."""
    code = kept_binary(folder, _depends_on(key, target), SUFFIX)
    return None if code is None else _linked(code, target)


def _depends_on(key: str, target: Target) -> str:
    return f"{llvmlite.__version__} {llvm.llvm_version_info} {target!r} {OPTIMIZATION}\n{key}"


def _linked(code: bytes, target: Target) -> NativeCode:
    _initialize()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(target))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return NativeCode(engine)


def _machine(target: Target) -> llvm.TargetMachine:
    found = llvm.Target.from_triple(target.triple)
    return found.create_target_machine(
        cpu=target.processor, features=target.features, opt=OPTIMIZATION, reloc="pic", codemodel="jitdefault"
    )


def _compiled(text: str, target: Target) -> bytes:
    with _optimized(text, target) as (machine, module):
        return bytes(machine.emit_object(module))


@contextmanager
def _optimized(text: str, target: Target) -> Iterator[tuple[llvm.TargetMachine, llvm.ModuleRef]]:
    """The target machine, and the optimised module.

    The module has its own context, so LLVM's types and constants are freed with it. One compilation
    leaks 2 KiB: the pass builder's table of callbacks, which llvmlite does not free.
    """
    _initialize()
    with (
        llvm.create_context() as context,
        _machine(target) as machine,
        _parsed(text, context) as module,
    ):
        _optimize(module, machine)
        yield machine, module


def _parsed(text: str, context: llvm.ContextRef) -> llvm.ModuleRef:
    module = None
    try:
        module = llvm.parse_assembly(text, context)
        module.verify()
    except RuntimeError as error:
        if module is not None:
            module.close()  # before its context, while the error still holds it
        raise InternalError(f"the generated code is not well formed: {error}") from error
    return module


def _optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=OPTIMIZATION)
    options.loop_vectorization = False  # the templates emit vectors already
    options.slp_vectorization = False
    options.loop_unrolling = False
    with options, llvm.create_pass_builder(machine, options) as builder:
        passes = builder.getModulePassManager()
        passes.run(module, builder)
        dispose = getattr(llvm.ffi.lib, "LLVMPY_DisposeNewModulePassManger", None)
        if dispose is not None:  # llvmlite's own `close` calls ObjectRef's empty one and frees nothing
            dispose(passes)
            passes.detach()
