"""Object code of modules that a run of the tests compiles more than once, in whichever of its processes."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from tensorbow.kernels.native.codegen.target import Target

Compile = Callable[[str, Target], bytes]


def compiled_once(compile_text: Compile, folder: Path) -> Compile:
    """A function that gives what `compile_text` gives, from `folder` where it was called for the same before.

    LLVM is a function of the two, so no test can see it. What links and calls the code is unchanged.
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
