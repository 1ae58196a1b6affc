"""The exception tree, after TensorFlow's status codes.

Every message says op, option or file, what was expected, what came, and
what to do about it. An error of a running step also names the user's line that created the op.
"""

from __future__ import annotations


class TensorBowError(Exception):
    """Base of every error this library raises on purpose.

    task: the cluster's task that raised the error, with which its message begins; "" outside of a cluster.
    """

    task: str = ""

    @property
    def message(self) -> str:
        """The error's text."""
        return str(self)


OpError = TensorBowError  # TensorFlow's name


class InvalidArgumentError(TensorBowError, ValueError):
    """An argument, shape, dtype, option or file content is invalid."""


class NotFoundError(TensorBowError, LookupError):
    """A name, file, variable or device does not exist."""


class AlreadyExistsError(TensorBowError):
    """Something to be created exists already."""


class FailedPreconditionError(TensorBowError, RuntimeError):
    """The system is not in the state that the call needs, for example a variable is uninitialised."""


class ResourceExhaustedError(TensorBowError, MemoryError):
    """Memory, disk or another bounded resource ran out."""


class OutOfRangeError(TensorBowError, IndexError):
    """An iteration went past the end of its input."""


class UnimplementedError(TensorBowError, NotImplementedError):
    """The operation exists, but not on this device or for these arguments."""


class CancelledError(TensorBowError):
    """The work was cancelled because its owner closed or another part failed."""


class AbortedError(TensorBowError):
    """The run ended early, by a fault or on request; a checkpoint says where to continue."""


class DeadlineExceededError(TensorBowError, TimeoutError):
    """The work took longer than its time limit and was given up."""


class UnavailableError(TensorBowError):
    """A process of a cluster does not answer; a new session goes on once it is back."""


class PermissionDeniedError(TensorBowError):
    """The other process refuses the caller, for example for another token."""


class DataLossError(TensorBowError):
    """A file is truncated, corrupt or hostile."""


class InternalError(TensorBowError, RuntimeError):
    """An invariant of the library is violated: please report it."""


class NumericsError(InvalidArgumentError):
    """A loss or tensor is NaN or infinite; names the step, the replica and, if known, the op."""


def raise_if_any(error: BaseException | None) -> None:
    """Raises an error kept earlier; does nothing for None.

    An error refers to the frames it passed through, and to their callers. A frame whose variables also hold
    the error forms a cycle, which keeps all its objects alive until the garbage collector runs; this
    function's frame does not.
    """
    try:
        if error is not None:
            raise error
    finally:
        del error
