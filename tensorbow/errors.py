"""The one exception tree, after TensorFlow's status codes.

Every message says what was being done (op, option or file), what was expected, what came, and
what to do about it. An error of a running step also names the user's own line that made the op.
"""

from __future__ import annotations


class TensorBowError(Exception):
    """Base of every error this library raises on purpose."""


class InvalidArgumentError(TensorBowError, ValueError):
    """An argument, shape, dtype, option or file content is not what the callee can accept."""


class NotFoundError(TensorBowError, LookupError):
    """A name, file, variable or device does not exist."""


class AlreadyExistsError(TensorBowError):
    """What was to be created is there already."""


class FailedPreconditionError(TensorBowError, RuntimeError):
    """The system is not in the state the call needs, for example an uninitialised variable."""


class ResourceExhaustedError(TensorBowError, MemoryError):
    """Memory, disk or another bounded resource ran out."""


class OutOfRangeError(TensorBowError, IndexError):
    """An iteration went past the end of its input."""


class UnimplementedError(TensorBowError, NotImplementedError):
    """The operation exists, but not on this device or for these arguments."""


class CancelledError(TensorBowError):
    """The work was given up because its owner closed or another part failed."""


class AbortedError(TensorBowError):
    """The run ended early, by a fault or on request; a checkpoint says where to go on."""


class DataLossError(TensorBowError):
    """A file is truncated, corrupt or hostile."""


class InternalError(TensorBowError, RuntimeError):
    """An invariant of the library itself does not hold: please report it."""


class NumericsError(InvalidArgumentError):
    """A loss or tensor is NaN or infinite; names the step, the replica and, where known, the op."""


def raise_if_any(error: BaseException | None) -> None:
    """Raises an error that was kept; None is none.

    An error holds the frames that it has passed, and their callers'. A frame that holds the error too, in a
    variable, makes a cycle, which keeps all that the frames know until the collector runs: this one does not.
    """
    try:
        if error is not None:
            raise error
    finally:
        del error
