"""Cache of object code for modules that a test run compiles more than once, in any of its processes."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from tensorbow.kernels.native.codegen.target import Target

Compile = Callable[[str, Target], bytes]


def compiled_once(compile_text: Compile, folder: Path) -> Compile:
    """Cached form of `compile_text`: reads the result from `folder` where the same text was compiled before.

    LLVM's output depends on its arguments alone, so no test can tell. Linking and calling the code is
    unchanged.
    """
    folder.mkdir(exist_ok=True)

    def compiled(text: str, target: Target) -> bytes:
        path = folder / hashlib.sha256(f"{target}\n{text}".encode()).hexdigest()
        if path.exists():
            return path.read_bytes()
        code = compile_text(text, target)
        unfinished = folder / uuid.uuid4().hex
        unfinished.write_bytes(code)
        os.replace(unfinished, path)
        return code

    return compiled
