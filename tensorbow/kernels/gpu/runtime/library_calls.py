"""Calls of C libraries through ctypes: every function is typed, every status checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_char_p, c_int, c_longlong, c_size_t, c_void_p
from typing import Any, NoReturn

from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import ResourceExhaustedError
from tensorbow.kernels.gpu.runtime.call import Enqueue

INT, LONG, SIZE, TEXT = c_int, c_longlong, c_size_t, c_char_p
HANDLE = ADDRESS = POINTER = c_void_p  # handles, device and host addresses

Signatures = Mapping[str, Sequence[Any]]  # argument types by function


class LibraryCalls:
    """The functions of a library that return a status, 0 for success.

    Untyped, ctypes would truncate addresses and 64-bit sizes to int.
    """

    def __init__(
        self,
        name: str,
        library: Any,
        signatures: Signatures,
        status_text: Callable[[int], str],
        exhausted: Sequence[int],
        make_current: Callable[[], None],
    ):
        """exhausted: statuses that mean lack of memory. make_current: called before every call."""
        self.name = name
        self._status_text = status_text
        self._exhausted = frozenset(exhausted)
        self._make_current = make_current
        self._functions = {key: typed(library, key, types, INT) for key, types in signatures.items()}

    def status(self, function: str, *arguments: Any) -> int:
        """Calls a function and returns its status."""
        self._make_current()
        return int(self._functions[function](*arguments))

    def __call__(self, op: str, function: str, *arguments: Any) -> None:
        """Calls a function. Raises CudaError, or ResourceExhaustedError, naming op, function and status."""
        status = self.status(function, *arguments)
        if status:
            self.fail(op, function, status)

    def bind(self, op: str, function: str, *arguments: Any) -> Enqueue:
        """A function without arguments that makes this call; objects behind pointers must stay alive."""
        call, make_current = self._functions[function], self._make_current

        def enqueue() -> None:
            make_current()
            status = call(*arguments)
            if status:
                self.fail(op, function, status)

        return enqueue

    def fail(self, op: str, function: str, status: int) -> NoReturn:
        """Raises the error of a nonzero status."""
        text = self._status_text(status)
        message = f"{op}: {function} of {self.name} failed with {text} ({status})"
        if status in self._exhausted:
            raise ResourceExhaustedError(
                f"{message}; use fewer replicas, smaller batches or smaller memory partitions"
            )
        raise CudaError(message, text)


def typed(library: Any, function: str, arguments: Sequence[Any], result: Any) -> Any:
    """A function of a library with its types set."""
    found = getattr(library, function)
    found.argtypes, found.restype = list(arguments), result
    return found
