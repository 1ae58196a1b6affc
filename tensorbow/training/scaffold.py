"""Scaffold: what a monitored session initialises, restores, saves and summarises (TensorFlow 1's name)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import Graph, GraphKeys, Operation, Tensor, get_default_graph
from tensorbow.kinds import FUNCTION, Function, Kind, Mapped, RefusedError, Text, checked, instance, optional
from tensorbow.ops.control import group
from tensorbow.ops.summaries import is_summary, merge_all
from tensorbow.runtime import Session
from tensorbow.runtime.prepared_variables import prepare_variables
from tensorbow.runtime.session_creators import local_initializer
from tensorbow.training.saver import Saver
from tensorbow.variable_lists import report_uninitialized_variables
from tensorbow.variables import global_variables, global_variables_initializer

_COLLECTIONS = {
    "init_op": GraphKeys.INIT_OP,
    "local_init_op": GraphKeys.LOCAL_INIT_OP,
    "ready_op": GraphKeys.READY_OP,
    "ready_for_local_init_op": GraphKeys.READY_FOR_LOCAL_INIT_OP,
    "summary_op": GraphKeys.SUMMARY_OP,
    "saver": GraphKeys.SAVERS,
}
NAMED = 3  # variables without a value that an error names


def _read_summary(value: Any) -> Any:
    if not is_summary(value):
        raise RefusedError
    return value


AsSaver: TypeAlias = Annotated[Saver, instance(Saver, expected="a tb.train.Saver")]
InitFn: TypeAlias = Annotated["Callable[..., Any] | None", optional(FUNCTION)]
AsPiece: TypeAlias = Annotated[Any, instance((Operation, Tensor), expected="an operation or a tensor")]
Summarised: TypeAlias = Annotated[Any, Kind("a summary of tb.summary", _read_summary)]


def _read_scaffold(value: Any) -> Any:
    if value is not None and not isinstance(value, Scaffold):
        raise RefusedError
    return value


def _only_item(argument: str, key: str) -> Any:
    """The item of a collection of the default graph, None if it is empty."""
    found = get_default_graph().get_collection(key)
    if len(found) > 1:
        raise InvalidArgumentError(
            f"Scaffold: expected one item in the collection {key!r}, got {len(found)}; give the one to use, "
            f"as tb.train.Scaffold({argument}=...)"
        )
    return found[0] if found else None


class Scaffold:
    """Pieces with which a monitored session prepares its variables, saves and summarises.

    A piece that is not given is that of copy_from_scaffold, or the only one in its collection, as
    `tb.GraphKeys.INIT_OP`, or is made when the session is made (`finalize`). It is an attribute from then on:

    init_op: run with init_feed_dict where no checkpoint is restored; by default initialises all variables.
    init_fn: function (scaffold, session), called after init_op, as to read weights from elsewhere; the
        attribute takes the session alone.
    local_init_op: run with local_init_feed_dict after both, and by workers that are no chief; by default
        initialises local variables and lookup tables.
    ready_op: gives the names of variables that have no value, strings `[n]`; the session is ready when there
        are none. By default `report_uninitialized_variables()`, where init_op is given.
    ready_for_local_init_op: the same, for what local_init_op reads; other workers wait for it.
    summary_op: a summary; by default all of the graph, merged; None if there are none.
    saver: by default one of all variables; None if there are none.
    """

    @checked
    def __init__(
        self,
        init_op: AsPiece | None = None,
        init_feed_dict: Mapped | None = None,
        init_fn: InitFn = None,
        ready_op: AsPiece | None = None,
        ready_for_local_init_op: AsPiece | None = None,
        local_init_op: AsPiece | None = None,
        summary_op: Summarised | None = None,
        saver: AsSaver | None = None,
        local_init_feed_dict: Mapped | None = None,
        copy_from_scaffold: Annotated[Any, Kind("a tb.train.Scaffold", _read_scaffold)] = None,
    ):
        """Keeps the pieces that are given, and for the others those that were given to copy_from_scaffold."""
        given: dict[str, Any] = {
            "init_op": init_op,
            "init_feed_dict": init_feed_dict,
            "init_fn": init_fn,
            "ready_op": ready_op,
            "ready_for_local_init_op": ready_for_local_init_op,
            "local_init_op": local_init_op,
            "summary_op": summary_op,
            "saver": saver,
            "local_init_feed_dict": local_init_feed_dict,
        }
        copied: dict[str, Any] = {} if copy_from_scaffold is None else copy_from_scaffold._given
        self._given = {name: copied.get(name) if each is None else each for name, each in given.items()}
        self.init_op: Any = self._given["init_op"]
        self.init_feed_dict = self._given["init_feed_dict"]
        self.init_fn: Callable[[Session], Any] | None = None
        if (initialise := self._given["init_fn"]) is not None:
            self.init_fn = lambda session: initialise(self, session)
        self.ready_op: Any = self._given["ready_op"]
        self.ready_for_local_init_op: Any = self._given["ready_for_local_init_op"]
        self.local_init_op: Any = self._given["local_init_op"]
        self.local_init_feed_dict = self._given["local_init_feed_dict"]
        self.summary_op: Any = self._given["summary_op"]
        self.saver: Saver | None = self._given["saver"]
        self._has_own_init = self.init_op is not None
        self._graph: Graph | None = None

    @staticmethod
    @checked
    def get_or_default(arg_name: Text, collection_key: Text, default_constructor: Function) -> Any:
        """The only item of a collection of the default graph, or a new one, which is put there if not None.

        Raises InvalidArgumentError for a collection of several, which names the argument to give instead.
        """
        found = _only_item(arg_name, collection_key)
        if found is None and (found := default_constructor()) is not None:
            get_default_graph().add_to_collection(collection_key, found)
        return found

    @staticmethod
    def default_local_init_op() -> Operation:
        """A new operation that initialises the local variables and lookup tables of the default graph."""
        return local_initializer() or group()

    def finalize(self) -> Scaffold:
        """Makes the pieces that are missing, in the default graph, once; returns the scaffold."""
        if self._graph is not None:
            return self
        self._graph = get_default_graph()
        for name, key in _COLLECTIONS.items():
            if getattr(self, name) is None:
                setattr(self, name, _only_item(name, key))
        self._has_own_init = self.init_op is not None
        if self.init_op is None:
            self.init_op = global_variables_initializer()
        if self.local_init_op is None:
            self.local_init_op = local_initializer()
        if self.ready_op is None and self._has_own_init:
            self.ready_op = report_uninitialized_variables()
        if self.summary_op is None:
            self.summary_op = merge_all()
        if self.saver is None and global_variables():
            self.saver = Saver()
        return self

    def prepare(self, session: Session, restore: Callable[[], bool]) -> bool:
        """Gives the variables values, as the chief does; True if they were restored.

        restore: sets variables from a checkpoint; False if there is none. Raises FailedPreconditionError if
        variables are without a value afterwards.
        """
        if self._has_own_init:
            is_restored = restore()
            if not is_restored:
                session.run(self.init_op, self._feeds(self.init_feed_dict))
        else:
            assert isinstance(self.init_op, Operation)
            is_restored = prepare_variables(session, self.init_op, restore)
        if not is_restored and self.init_fn is not None:
            self.init_fn(session)
        self.prepare_locals(session)
        if missing := self.missing(session, self.ready_op):
            more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
            done = "the checkpoint" if is_restored else "init_op, init_fn"
            raise FailedPreconditionError(
                f"Scaffold: after {done} and local_init_op there is no value for "
                f"{', '.join(missing[:NAMED])}{more}; have init_op initialise them"
            )
        return is_restored

    def prepare_locals(self, session: Session) -> None:
        """Runs local_init_op, if there is one."""
        if self.local_init_op is not None:
            session.run(self.local_init_op, self._feeds(self.local_init_feed_dict))

    @staticmethod
    def missing(session: Session, ready_op: Any) -> list[str]:
        """Names that a ready_op gives; none without one."""
        if ready_op is None:
            return []
        found = session.run(ready_op)
        names = [] if found is None else np.ravel(found).tolist()
        return [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names]

    @staticmethod
    def _feeds(given: Mapping[Any, Any] | None) -> dict[Any, Any] | None:
        return None if given is None else dict(given)
