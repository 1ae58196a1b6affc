"""Values that stay with a session from one run to the next, by handle (TensorFlow 1's session_ops)."""

from __future__ import annotations

import itertools
import secrets
import threading
import weakref
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from tensorbow.devices import DeviceValue
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    HostCall,
    Operation,
    Tensor,
    as_tensor,
    device,
    name_scope,
)
from tensorbow.kinds import AsDType, Kind, Name, RefusedError, checked
from tensorbow.ops.control import placeholder
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.specs import Array, DType, TensorSpec, as_dtype, string

_HANDLE = TensorSpec((), string)
_stores: weakref.WeakValueDictionary[str, SessionTensors] = weakref.WeakValueDictionary()


class SessionTensors:
    """The values that a session keeps, by number; those on a GPU stay in its memory. Thread-safe."""

    def __init__(self) -> None:
        self.key = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._values: dict[str, Any] = {}  # by handle
        self._is_closed = False
        _stores[self.key] = self

    def keep(self, name: str, value: Any) -> str:
        """Keeps a value, arrays in host memory as a copy; returns its handle."""
        kept = value if isinstance(value, DeviceValue) else np.array(value)
        handle = f"{name};{self.key};{next(self._numbers)}"
        with self._lock:
            self._values[handle] = kept
        return handle

    def value(self, handle: str, call: str) -> Any:
        """A kept value: an array, not to be written, or a DeviceValue. Raises as `delete` does."""
        with self._lock:
            return self._found(handle, call, self._values.get(handle))

    def delete(self, handle: str, call: str) -> None:
        """Forgets a value. Raises InvalidArgumentError for one that is not kept here (any more)."""
        with self._lock:
            self._found(handle, call, self._values.pop(handle, None))

    def _found(self, handle: str, call: str, value: Any) -> Any:
        if value is not None:
            return value
        if self._is_closed:
            raise FailedPreconditionError(
                f"{call}: the session of {handle!r} is closed, and with it went the value; fetch it before"
            )
        raise InvalidArgumentError(
            f"{call}: expected the handle of a value that this session keeps, got {handle!r:.100}; fetch "
            "tb.get_session_handle(tensor) in it, and use the handle before it is deleted"
        )

    def close(self) -> None:
        """Forgets all values, as the session ends."""
        with self._lock:
            self._is_closed = True
            self._values.clear()


class TensorHandle:
    """A value that a session keeps; what fetching `tb.get_session_handle(tensor)` gives.

    Feed it to the placeholder of `tb.get_session_tensor`, or to any tensor in place of its value, which then
    passes through host memory. The value is kept until `delete`, or until the session is closed.
    """

    def __init__(self, handle: str, dtype: DType, store: SessionTensors):
        self.handle, self.dtype, self._store = handle, dtype, store

    def to_raw_string(self) -> str:
        """The handle as text, for `tb.get_session_tensor` and `tb.delete_session_tensor`."""
        return self.handle

    def eval(self) -> Any:
        """The value as an array of one's own, or for rank 0 a NumPy scalar.

        Raises InvalidArgumentError after `delete`, FailedPreconditionError in a closed session.
        """
        value = self._store.value(self.handle, "TensorHandle.eval")
        array = np.array(value.host() if isinstance(value, DeviceValue) else value)
        return array if array.ndim else array[()]

    def delete(self) -> None:
        """Forgets the value. Raises as `eval` does."""
        self._store.delete(self.handle, "TensorHandle.delete")

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        array = np.asarray(self.eval())  # a copy
        return array if dtype is None else array.astype(dtype, copy=False)

    def __str__(self) -> str:
        return self.handle

    def __repr__(self) -> str:
        return f"<TensorHandle {self.handle!r} of {self.dtype.name}>"


def _store_of(call: HostCall) -> SessionTensors:
    store: SessionTensors = call.resources.own("session tensors", SessionTensors)
    return store


def _handle_in(call: HostCall) -> str:
    handle: Any = call.inputs[0][()]
    return str(handle, "utf-8", "backslashreplace")


def _keep(call: HostCall) -> Array:
    return np.array(_store_of(call).keep(call.name, call.inputs[0]).encode(), object)


def _handle_spec(inputs: Sequence[TensorSpec], attrs: Any) -> TensorSpec:
    require_dtype("get_session_tensor", inputs[0], (string,), "the handle")
    return TensorSpec(None, attrs["dtype"])


def _kept(call: HostCall) -> Any:
    handle = _handle_in(call)
    value, dtype = _store_of(call).value(handle, "get_session_tensor"), call.attrs["dtype"]
    if value.dtype != dtype.as_numpy_dtype:
        got = as_dtype(value.dtype).name
        raise InvalidArgumentError(
            f"get_session_tensor: expected a handle of {dtype.name}, got one of {got}; make the tensor with "
            f"dtype tb.{got}"
        )
    return [value]


def _delete(call: HostCall) -> list[Array]:
    _store_of(call).delete(_handle_in(call), "delete_session_tensor")
    return []


def _as_handle(op: Operation, values: Sequence[Any]) -> TensorHandle:
    handle = values[0].decode()
    store = _stores.get(handle.split(";")[-2])
    if store is None:
        raise InvalidArgumentError(
            f"get_session_handle: {handle!r:.100} is a value of another process; use a tb.Session of this one"
        )
    return TensorHandle(handle, op.attrs["dtype"], store)


KeepSessionTensor = define_op(
    "GetSessionHandleV2",
    spec=lambda inputs, attrs: _HANDLE,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("value",),
    host=_keep,
    keeps=True,
    stateful=True,
    strings=True,
    doc="Keeps a value with the session; gives its handle.",
)
SessionHandle = define_op(
    "SessionHandle",
    spec=lambda inputs, attrs: _HANDLE,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("handle",),
    attrs={"dtype": REQUIRED},
    fetched=_as_handle,
    strings=True,
    doc="A kept value's handle as a TensorHandle, for those who fetch it.",
)
GetSessionTensor = define_op(
    "GetSessionTensor",
    spec=_handle_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("handle",),
    attrs={"dtype": REQUIRED},
    host=_kept,
    keeps=True,
    stateful=True,
    strings=True,
    doc="The value of a handle.",
)
DeleteSessionTensor = define_op(
    "DeleteSessionTensor",
    spec=lambda inputs, attrs: (),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("handle",),
    host=_delete,
    stateful=True,
    strings=True,
    doc="Forgets the value of a handle.",
)


def takes_handle(tensor: Tensor) -> bool:
    """True for a placeholder of a handle, as of `get_session_tensor`."""
    return any(op.definition in (GetSessionTensor, DeleteSessionTensor) for op in tensor.consumers())


def _read_handle(value: Any) -> str:
    if isinstance(value, TensorHandle):
        return value.handle
    if isinstance(value, str) and value.count(";") >= 2:
        return value
    if isinstance(value, bytes) and value.count(b";") >= 2:
        return value.decode()
    raise RefusedError


AsHandle = Kind("a handle, fetched from tb.get_session_handle", _read_handle)


@checked
def get_session_handle(data: Any, name: Name = None) -> Tensor:
    """A tensor that keeps the value of `data` with the session that runs it; fetching gives a `TensorHandle`.

    A value on a GPU of more than 4096 elements stays in its memory. Runs in the dynamic mode, in a session of
    this process. The handle can only be fetched.
    """
    value = as_tensor(data)
    with value.graph.as_default(), device(None), name_scope(name or "GetSessionHandle"):
        return SessionHandle.tensor(KeepSessionTensor.tensor(value, name="Keep"), dtype=value.dtype)


@checked
def get_session_tensor(
    handle: Annotated[Any, AsHandle], dtype: AsDType, name: Name = None
) -> tuple[Tensor, Tensor]:
    """A placeholder of handles, and the tensor of dtype `dtype` whose value is that of the fed handle.

    handle: any `TensorHandle` or its text, as in TensorFlow; each run may be fed with another one. The
    tensor's shape is not known. A run raises InvalidArgumentError for a handle that its session does not keep
    or that is of another dtype.
    """
    with device(None), name_scope(name or "GetSessionTensor"):
        holder = placeholder(string, [], name="handle")
        return holder, GetSessionTensor.tensor(holder, dtype=dtype)


@checked
def delete_session_tensor(handle: Annotated[Any, AsHandle], name: Name = None) -> tuple[Tensor, Operation]:
    """A placeholder of handles, and the operation that forgets the value of the fed one.

    handle: as of `get_session_tensor`. A run raises InvalidArgumentError for a handle that its
    session does not keep.
    """
    with device(None), name_scope(name or "DeleteSessionTensor"):
        holder = placeholder(string, [], name="handle")
        result: Operation = DeleteSessionTensor(holder)
        return holder, result
