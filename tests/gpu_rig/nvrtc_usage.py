"""Registers, stack and spilled bytes of a kernel, as the assembler within NVRTC reports them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tensorbow.devices.cupy_runtime import nvrtc_identity
from tensorbow.errors import NotFoundError
from tests.gpu_rig.cuda_compiler import cache_folder

ARCHITECTURES = (80, 90, 100)
_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


class Usage(NamedTuple):
    """Of one kernel. stack_nbytes: arrays that do not fit registers, per thread."""

    kernel: str
    registers: int
    stack_nbytes: int
    spilled_nbytes: int


def require_nvrtc(architecture: int) -> int:
    """Skips the test, with the reason, where NVRTC is missing or does not know the architecture."""
    try:
        identity = nvrtc_identity(architecture)
    except (NotFoundError, RuntimeError, OSError) as error:  # CuPy raises its own where NVRTC is missing
        pytest.skip(f"no NVRTC: {str(error).splitlines()[0]:.150}")
    if f"sm_{architecture}" not in identity:
        pytest.skip(f"{identity}: too old for sm_{architecture}")
    return architecture


def usages(sources: Mapping[str, str], architecture: int) -> tuple[dict[str, list[Usage]], list[str]]:
    """Usage of all kernels by source (text -> name), and the logs of those that do not compile.

    Compiles on all cores; what this NVRTC has compiled before is read from the test's cache.
    """
    with ThreadPoolExecutor() as pool:
        found = [*pool.map(lambda text: _usage(text, sources[text], architecture), sources)]
    logs = [each for each in found if isinstance(each, str)]
    return {t: each for t, each in zip(sources, found, strict=True) if isinstance(each, list)}, logs


def _usage(text: str, name: str, architecture: int) -> list[Usage] | str:
    identity = nvrtc_identity(architecture)
    path = cache_folder() / f"{hashlib.sha256(f'{identity}{text}'.encode()).hexdigest()}.usage.json"
    if path.exists():
        return [Usage(*each) for each in json.loads(path.read_text())]
    log, compiles = _compiled(text, name, identity)
    if not compiles:
        return f"{name}: {log}"
    found = _in_log(log)
    if not found:
        raise AssertionError(f"{name}: NVRTC's log names no kernel: {log!r}")
    path.write_text(json.dumps(found))
    return found


def _compiled(text: str, name: str, identity: str) -> tuple[str, bool]:
    """The log, and whether the source compiles, with the product's options."""
    from cupy.cuda import nvrtc

    options = tuple(option for option in identity.split() if option.startswith("-"))
    program = nvrtc.createProgram(text, name, (), ())
    try:
        nvrtc.compileProgram(program, (*options, "--ptxas-options=-v"))
        if not bytes(nvrtc.getCUBIN(program)).startswith(b"\x7fELF"):
            raise AssertionError(f"{name}: not machine code")
        return nvrtc.getProgramLog(program), True
    except nvrtc.NVRTCError:
        return nvrtc.getProgramLog(program), False
    finally:
        nvrtc.destroyProgram(program)


def _in_log(log: str) -> list[Usage]:
    found = []
    for part in re.split(r"(?=ptxas info\s*: Compiling entry)", log)[1:]:
        entry, stack, registers = (p.search(part) for p in (_ENTRY, _STACK, _REGISTERS))
        if entry is None or stack is None or registers is None:
            raise AssertionError(f"NVRTC's log has changed: {part}")
        frame, stores, loads = map(int, stack.groups())
        found.append(Usage(entry[1], int(registers[1]), frame, stores + loads))
    return found
