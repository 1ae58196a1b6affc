"""MonitoredSession: initialises variables, runs hooks, ends with the input (TensorFlow 1's names)."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Annotated, Any, NamedTuple, TypeAlias

from tensorbow.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
    UnavailableError,
)
from tensorbow.graph import AsGraph, get_default_graph
from tensorbow.kinds import (
    ITEMS,
    Flag,
    Function,
    Kind,
    Mapped,
    NonNegative,
    Positive,
    Text,
    checked,
    instance,
    shown,
)
from tensorbow.queues import Coordinator, start_queue_runners
from tensorbow.runtime.config_proto import RunMetadata, RunOptions, joined_options
from tensorbow.runtime.fetches_and_feeds import Arguments
from tensorbow.runtime.global_step import get_global_step
from tensorbow.runtime.session import Session
from tensorbow.runtime.session_creators import PAUSE_S, PlainSessionCreator, SessionCreator
from tensorbow.variables import Variable

FAULTS = (UnavailableError, AbortedError)  # of a cluster, after which a new session goes on

_logger = logging.getLogger("tensorbow.runtime")


class SessionRunArgs(NamedTuple):
    """Arguments of a run; a hook's `before_run` returns the fetches and feeds that it adds.

    fetches: a tensor, operation, variable, name, any nest of them, or None.
    feed_dict: values by tensor or name.
    options: of the run, for which the highest trace level and the longest time limit of all hooks hold.
    """

    fetches: Any
    feed_dict: Mapping[Any, Any] | None = None
    options: RunOptions | None = None


class SessionRunValues(NamedTuple):
    """Values of a hook's fetches, in the hook's own nest; `results` is None if the hook added no fetches.

    options, run_metadata: of the run, if the caller or a hook gave options, or the caller metadata.
    """

    results: Any
    options: RunOptions | None = None
    run_metadata: RunMetadata | None = None


@dataclass
class SessionRunContext:
    """One call of `MonitoredSession.run`, passed to hooks; `fetches` and `feed_dict` are the caller's.

    during: contexts that a hook's `before_run` enters for the run; they are left after it, also if it fails.
    """

    session: Session
    fetches: Any
    feed_dict: Mapping[Any, Any] | None
    stop_requested: bool = field(default=False, init=False)
    during: ExitStack = field(default_factory=ExitStack, init=False)

    @property
    def original_args(self) -> SessionRunArgs:
        """The caller's fetches and feeds."""
        return SessionRunArgs(self.fetches, self.feed_dict)

    def request_stop(self) -> None:
        """Ends the loop: `should_stop()` is True from now on."""
        self.stop_requested = True


class SessionRunHook:
    """Base of hooks, which a monitored session calls around each run; every method here does nothing."""

    def begin(self) -> None:
        """Called before the session is made; may add to the graph."""

    def after_create_session(self, session: Session) -> None:
        """Called once the session exists and its variables are initialised.

        A method with one more parameter gets the coordinator of the session's threads, as in TensorFlow.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each `run`; the returned fetches run in the same step as the caller's."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each `run` with the values of the fetches that `before_run` added."""

    def end(self, session: Session) -> None:
        """Called when the session is closed, unless an error ended its loop."""


class StopAtStepHook(SessionRunHook):
    """Ends the loop after `num_steps` steps, or at `last_step` of the global step, like TensorFlow's hook.

    If the graph has a global step (`get_global_step`), `num_steps` counts from its value at the session's
    creation; otherwise every call of `run` counts. The check follows each run, so a loop that begins at
    its last step still runs one step.
    """

    @checked
    def __init__(self, num_steps: Positive | None = None, last_step: Positive | None = None):
        """Raises InvalidArgumentError unless exactly one of both is given, a whole number of at least 1."""
        if num_steps is None and last_step is None:
            raise InvalidArgumentError("StopAtStepHook: One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise InvalidArgumentError(
                f"StopAtStepHook: Only one of num_steps or last_step can be specified, "
                f"got {num_steps} and {last_step}"
            )
        self._num_steps = num_steps
        self._last_step = last_step
        self._global_step: Variable | None = None
        self._stop_at = 0
        self._done = 0

    def begin(self) -> None:
        """Finds the global step. Raises FailedPreconditionError if `last_step` is given and there is none."""
        self._global_step = get_global_step()
        if self._global_step is None and self._last_step is not None:
            raise FailedPreconditionError(
                "StopAtStepHook: Global step should be created to use last_step: "
                "tb.train.get_or_create_global_step(), given to minimize; or use num_steps"
            )

    def after_create_session(self, session: Session) -> None:
        """Starts counting."""
        self._done = 0
        if self._last_step is not None:
            self._stop_at = self._last_step
        elif self._num_steps is not None:
            self._stop_at = self._num_steps + self._reached(session)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Counts the run."""
        self._done += 1
        if self._reached(run_context.session) >= self._stop_at:
            run_context.request_stop()

    def _reached(self, session: Session) -> int:
        """The current step."""
        return self._done if self._global_step is None else int(session.run(self._global_step))


def _read_hooks(value: Any) -> list[SessionRunHook]:
    return [_HOOK.read(hook) for hook in ITEMS.read(value)]


_HOOK = instance(SessionRunHook, expected="a tb.train.SessionRunHook")
Hooks: TypeAlias = Annotated[Iterable[SessionRunHook], Kind("a list of tb.train.SessionRunHook", _read_hooks)]


def _tell(hook: SessionRunHook, session: Session, coordinator: Coordinator) -> None:
    """Calls `after_create_session` of a hook, with the coordinator if it takes one."""
    told: Callable[..., None] = hook.after_create_session
    kinds = [each.kind for each in inspect.signature(told).parameters.values()]
    positional = sum(kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    more = (coordinator,) if positional > 1 or Parameter.VAR_POSITIONAL in kinds else ()
    told(session, *more)


def _name(hook: SessionRunHook) -> str:
    return type(hook).__name__


class _SessionThreads(Coordinator):
    """The coordinator of a session's threads, which tells of an error before it stops them."""

    def __init__(self, tell: Callable[[Any], None]):
        super().__init__()
        self._tell = tell

    def request_stop(self, ex: Any = None) -> None:
        """See Coordinator."""
        if not self.should_stop():
            self._tell(ex[1] if isinstance(ex, tuple) and len(ex) == 3 else ex)
        super().request_stop(ex)


AsCreator: TypeAlias = Annotated[
    SessionCreator, instance(SessionCreator, expected="a tb.train.SessionCreator")
]


class MonitoredSession:
    """A session that initialises its variables and ends with the input.

        with tb.train.MonitoredSession(hooks=[tb.train.StopAtStepHook(100)]) as session:
            while not session.should_stop():
                session.run(train_op)

    An OutOfRangeError, the end of the input, or a StopIteration ends the `with` block and is not raised
    further; other errors are. Within the block it is the default session. It starts the threads of the
    graph's queue runners (`tb.train.batch`), and ends them with the block, which raises an error of one of
    them.

    On a cluster (the target of a `tb.train.Server`), a task that fails ends the session: the next one is made
    as soon as all tasks are back, its hooks restore the last checkpoint, and the step runs again. That holds
    too where the thread of a queue meets the fault: queues of other tasks stay open, and keep their elements.
    A chief that is started again while others train does the same: with a checkpoint their variables go back
    to it.
    """

    @checked
    def __init__(
        self,
        session_creator: AsCreator | None = None,
        *,
        hooks: Hooks = (),
        target: Text = "",
        graph: AsGraph | None = None,
        is_chief: Flag = True,
        max_wait_secs: NonNegative | None = None,
        stop_grace_period_secs: NonNegative = 120.0,
        **options: Any,
    ):
        """A session over the graph (by default the default graph); options are those of `tb.Session`.

        is_chief: False for all workers of a cluster but one: they wait until the chief has initialised the
        variables. max_wait_secs: how long a worker waits for that, and for tasks that have failed; by
        default two hours.
        stop_grace_period_secs: how long the threads of queue runners may take to end with the session.
        session_creator: makes the sessions, as a `tb.train.ChiefSessionCreator`, in place of target,
        is_chief, max_wait_secs and options.
        """
        self.graph = graph if graph is not None else get_default_graph()
        self._hooks = list(hooks)
        own = {"target": target, "is_chief": not is_chief, "max_wait_secs": max_wait_secs is not None}
        given = [*(name for name, is_given in own.items() if is_given), *options]
        if session_creator is not None and given:
            raise InvalidArgumentError(
                "MonitoredSession: expected session_creator or options of a session, got both; give "
                f"{', '.join(given)} to the creator"
            )
        wait_s = 7200.0 if max_wait_secs is None else max_wait_secs
        self._creator = session_creator or PlainSessionCreator(target, is_chief, wait_s, options)
        self._arguments = Arguments(self.graph)
        self._met: Exception | None = None  # fault of the cluster, by which a thread has closed the session
        self._stopping, self._grace_s = False, stop_grace_period_secs
        self._callbacks: list[Callable[[], None]] = []
        self._coordinator = Coordinator()
        self._stack = ExitStack()
        self._entered = False  # by `with`, so that it is the default session
        with self.graph.as_default():
            for hook in self._hooks:
                hook.begin()
        self._session: Session | None = None
        try:
            try:
                self._begin()
            except Exception as error:
                self._recover(self._met or error)
        except BaseException:
            self._close()
            raise

    def _begin(self) -> None:
        """Makes the session, whose variables have values then, starts its threads, and tells the hooks."""
        with self.graph.as_default():
            self._met = None
            self._session = session = self._creator.create_session()
        self._coordinator = _SessionThreads(lambda error: self._abandon(session, error))
        start_queue_runners(session, self._coordinator)
        for hook in self._hooks:
            _tell(hook, session, self._coordinator)

    @property
    def _is_remote(self) -> bool:
        """True on a cluster, whose tasks may fail and come back."""
        return "://" in self._creator.target

    def _abandon(self, session: Session, error: Any) -> None:
        """Closes a session where a thread has met a fault of the cluster: the next call makes another.

        A step that waits for the thread's queue ends so, while queues at other tasks stay open.
        """
        is_current = session is self._session and not self._stopping
        if isinstance(error, FAULTS) and self._is_remote and is_current:
            self._met = error  # first: a step that ends so looks for it
            session.close()

    def _recover(self, fault: Exception) -> None:
        """Makes a new session after a fault of a cluster; raises the fault if there is none, or too late."""
        if not self._is_remote or not isinstance(fault, FAULTS):
            raise fault
        problem, waits_s = (
            str(fault).partition("; ")[0],
            self._creator.max_wait_secs,
        )  # without the remedy of a Session
        _logger.warning(
            "%s; start it again: this session waits up to %g s, and goes on from the last checkpoint that it "
            "has saved",
            problem,
            waits_s,
        )
        deadline = time.monotonic() + waits_s
        while True:
            if self._session is not None:
                self._session.close()
            self._coordinator.request_stop()  # ends the threads of the closed session
            try:
                self._begin()
                break
            except Exception as error:
                if not isinstance(self._met or error, FAULTS):
                    raise
                if time.monotonic() > deadline:
                    raise type(fault)(
                        f"{problem}; this session has waited {waits_s:g} s for it: start it again and then "
                        "this program, or give max_wait_secs"
                    ) from None
                time.sleep(PAUSE_S)
        if self._entered:
            self._stack.close()
            self._stack.enter_context(self._open().as_default())

    @property
    def hooks(self) -> tuple[SessionRunHook, ...]:
        """The session's hooks, in the order of their calls."""
        return tuple(self._hooks)

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """`tb.Session.run`, with the hooks called around it and their fetches and feeds added.

        Raises OutOfRangeError at the end of the input, InvalidArgumentError for a tensor that is fed twice,
        by hooks or by a hook and the caller.
        """
        while True:
            try:
                return self._run(fetches, feed_dict, options, run_metadata)
            except Exception as error:
                if self._met is None and not isinstance(error, FAULTS):
                    self._stopping |= isinstance(error, (OutOfRangeError, StopIteration))
                    raise
                self._recover(self._met or error)

    def _run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None,
        options: RunOptions | None,
        run_metadata: RunMetadata | None,
    ) -> Any:
        session = self._open()
        context = SessionRunContext(session, fetches, feed_dict)
        with context.during:
            added = [(hook, self._added(hook, context)) for hook in self._hooks]
            given = [(_name(hook), args.feed_dict) for hook, args in added]
            feeds = self._merged([("the caller", feed_dict), *given])
            asked = [args.fetches for _, args in added if args.fetches is not None]
            for wanted in (args.options for _, args in added if args.options is not None):
                options = joined_options(options, wanted)
                run_metadata = RunMetadata() if run_metadata is None else run_metadata
            values, *others = session.run([fetches, *asked], feeds, options, run_metadata)
        results = iter(others)
        for hook, args in added:
            result = None if args.fetches is None else next(results)
            hook.after_run(context, SessionRunValues(result, options, run_metadata))
        self._stopping = self._stopping or context.stop_requested
        return values

    def _added(self, hook: SessionRunHook, context: SessionRunContext) -> SessionRunArgs:
        args = hook.before_run(context)
        if args is None:
            return SessionRunArgs(None)
        if not isinstance(args, SessionRunArgs):
            raise InvalidArgumentError(
                f"{_name(hook)}.before_run: expected tb.train.SessionRunArgs or None, got {shown(args)}"
            )
        return args

    def _merged(self, given: Iterable[tuple[str, Mapping[Any, Any] | None]]) -> dict[Any, Any]:
        """All feeds by tensor. given: (owner, feeds) pairs; the owner is named in errors."""
        feeds: dict[Any, Any] = {}
        owners: dict[Any, str] = {}
        for owner, feed_dict in given:
            for tensor, value in self._arguments.named({} if feed_dict is None else feed_dict).items():
                if tensor in feeds:
                    raise InvalidArgumentError(
                        f"MonitoredSession.run: {tensor.name} is fed by {owners[tensor]} and by {owner}; "
                        "feed it in one place"
                    )
                feeds[tensor], owners[tensor] = value, owner
        return feeds

    def should_stop(self) -> bool:
        """True once a hook, the end of the input, a thread, or `close` has ended the loop.

        Makes a new session where a thread has met a fault of the cluster, as `run` does.
        """
        if self._met is not None and self._session is not None and not self._stopping:
            self._recover(self._met)
        return self._stopping or self._session is None or self._coordinator.should_stop()

    @checked
    def load_variables(self, values: Mapped) -> None:
        """Sets variables by name, see `tb.Session.load_variables`."""
        self._open().load_variables(values)

    @checked
    def on_close(self, callback: Function) -> None:
        """Registers a callback to be called before the session closes, however it ends."""
        self._open()
        self._callbacks.append(callback)

    def _open(self) -> Session:
        if self._session is None:
            raise FailedPreconditionError("the monitored session is closed; make a new one")
        return self._session

    def close(self) -> None:
        """Calls the hooks' `end` and the registered callbacks, and closes the session; idempotent."""
        try:
            if self._session is not None:
                if self._met is not None:
                    raise self._met  # the session is closed: hooks cannot save what came after a checkpoint
                for hook in self._hooks:
                    hook.end(self._session)
        finally:
            self._close()

    def _close(self) -> None:
        session, self._session = self._session, None
        with ExitStack() as stack:
            if session is not None:
                stack.callback(session.close)
                stack.callback(self._end_threads)
            for callback in self._callbacks:
                stack.callback(callback)
            self._callbacks = []

    def _end_threads(self) -> None:
        """Ends the threads of queue runners. Raises the error of one of them, but no fault of the cluster
        behind the last step.
        """
        self._coordinator.request_stop()
        try:
            self._coordinator.join(stop_grace_period_secs=self._grace_s, ignore_live_threads=True)
        except FAULTS as fault:
            if not self._is_remote or not self._stopping:
                raise
            _logger.warning("MonitoredSession: behind the last step: %s", fault)

    def __enter__(self) -> MonitoredSession:
        self._stack.enter_context(self._open().as_default())
        self._entered = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        self._stack.close()
        if kind is None or issubclass(kind, (OutOfRangeError, StopIteration)):
            self.close()
            return kind is not None
        try:
            self._close()
        except Exception as error:
            _logger.warning("MonitoredSession: beside the error of the block: %s", error)
        return False
