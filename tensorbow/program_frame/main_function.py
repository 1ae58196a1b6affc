"""Runs a program's `main` after its flags are read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tensorbow.errors import InvalidArgumentError
from tensorbow.program_frame.command_line_flags import FLAGS


def run(main: Callable[[list[str]], Any] | None = None, argv: Sequence[str] | None = None) -> NoReturn:
    """Calls main(argv) and exits with what it returns.

    main: by default the function of this name in the program. argv: the command line, by default `sys.argv`;
    main gets its first word and what is left without the flags of `tb.flags`. `--help` prints them. Exits
    with 1, after a message, for a flag of a wrong value.
    """
    program = sys.modules["__main__"]
    words = [*(sys.argv if argv is None else argv)]
    call = main or getattr(program, "main", None)
    if not callable(call):
        raise InvalidArgumentError(
            f"app.run: expected a function main(argv) in the program, got {call!r:.80}; write one, or give it"
        )
    if {"--help", "-help", "-h"} & {*words[1:]}:
        print(f"{program.__doc__ or ''}\nflags:\n{FLAGS.get_help()}".strip())
        sys.exit(0)
    try:
        left = FLAGS(words, known_only=True)
    except InvalidArgumentError as error:
        sys.exit(f"{words[0] if words else ''}: {error}; --help lists the flags")
    sys.exit(call(left))
