"""SyncReplicasOptimizer: gradients of several workers of a cluster, averaged before they are applied.

TensorFlow 1's class (Abadi et al., 2016, section 4.4; Chen et al., 2016): each step takes the first
`replicas_to_aggregate` gradients of every variable; those that come later, of an earlier step, are dropped.
The replicas of one process and of MPI's are averaged by `sync="ssgd"` instead, without queues.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import GraphKeys, Operation, Tensor, colocate_with, control_dependencies, name_scope
from tensorbow.kinds import Flag, Items, Name, Positive, checked, instance, whole
from tensorbow.ops.control import group, no_op
from tensorbow.ops.filling import fill
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.optimizers import ExponentialMovingAverage, Optimizer
from tensorbow.optimizers.optimizer import GlobalStep, GradientsAndVariables, pairs_of
from tensorbow.queues import ConditionalAccumulator, FIFOQueue, QueueRunner, SparseConditionalAccumulator
from tensorbow.runtime import Session, SessionRunHook
from tensorbow.specs import int64
from tensorbow.variable_lists import report_uninitialized_variables
from tensorbow.variables import AsVariable, Variable, Variables, global_variables

AsOptimizer: TypeAlias = Annotated[Optimizer, instance(Optimizer, expected="an optimiser of tb.train")]
Averages: TypeAlias = Annotated[
    ExponentialMovingAverage,
    instance(ExponentialMovingAverage, expected="a tb.train.ExponentialMovingAverage"),
]
Tokens: TypeAlias = Annotated[int, whole(-1, (1 << 31) - 1)]


class SyncReplicasOptimizer(Optimizer):
    """Applies the mean of the gradients of several workers, in graphs over processes.

        optimizer = tb.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=2)
        train_op = optimizer.minimize(loss, global_step=tb.train.get_global_step())
        hook = optimizer.make_session_run_hook(is_chief)
        with tb.train.MonitoredTrainingSession(server.target, is_chief, hooks=[hook]) as session:
            session.run(train_op)

    Every worker builds this graph; its gradients go to accumulators beside the variables. A thread of the
    chief takes their means, applies them, and gives each worker a token, for which a run of train_op waits.
    """

    @checked
    def __init__(
        self,
        opt: AsOptimizer,
        replicas_to_aggregate: Positive,
        total_num_replicas: Positive | None = None,
        variable_averages: Averages | None = None,
        variables_to_average: Variables | None = None,
        use_locking: Flag = False,
        name: Name = "sync_replicas",
    ):
        """opt: applies the means. replicas_to_aggregate: gradients in a mean. total_num_replicas: workers, by
        default as many; with more the slowest of a step are left behind, with fewer a worker computes several
        gradients of a step. variable_averages, variables_to_average: are applied after each step.

        Raises InvalidArgumentError for one of the last two alone.
        """
        if (variable_averages is None) != (variables_to_average is None):
            raise InvalidArgumentError(
                "SyncReplicasOptimizer: expected variable_averages and variables_to_average, got one of them"
            )
        super().__init__(opt.learning_rate, use_locking, name)
        self._opt, self._replicas_to_aggregate = opt, replicas_to_aggregate
        self._total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        self._tokens_per_step = max(self._total, replicas_to_aggregate)
        self._averages, self._averaged = variable_averages, variables_to_average
        self._queue: FIFOQueue | None = None
        self._global_step: Variable | None = None
        self._runner: QueueRunner | None = None
        self.local_step_init_op: Operation | None = None
        self.chief_init_op: Operation | None = None
        self.ready_for_local_init_op: Tensor | None = None

    def compute_gradients(self, *args: Any, **kwargs: Any) -> GradientsAndVariables:
        """The optimiser's `compute_gradients`, of this worker alone."""
        return self._opt.compute_gradients(*args, **kwargs)

    @checked
    def apply_gradients(
        self, grads_and_vars: Items, global_step: GlobalStep = None, name: Name = None
    ) -> Operation:
        """The operation of a worker's step: gives the gradients, and waits until the step has been made.

        Raises InvalidArgumentError without a global step, or without gradients.
        """
        if global_step is None:
            raise InvalidArgumentError(
                "SyncReplicasOptimizer: expected global_step to be a variable, got None; give "
                "tb.train.get_or_create_global_step()"
            )
        pairs = pairs_of(grads_and_vars)
        self._global_step = global_step
        with global_step.graph.as_default(), name_scope(None):
            local_step = self._local_step(global_step)
            self.ready_for_local_init_op = report_uninitialized_variables(global_variables())
            given, taken, begun = [], list[Any](), [self.local_step_init_op]
            for gradient, variable in pairs:
                with colocate_with(variable.op):
                    sums = self._accumulator(gradient, variable)
                    begun.append(sums.set_global_step(global_step.value()))
                    if isinstance(gradient, IndexedSlices):
                        given.append(sums.apply_indexed_slices_grad(gradient, local_step.value()))
                        mean: Any = sums.take_indexed_slices_grad(self._replicas_to_aggregate)
                    else:
                        given.append(sums.apply_grad(gradient, local_step.value()))
                        mean = sums.take_grad(self._replicas_to_aggregate)
                taken.append((mean, variable))
            with colocate_with(global_step.op):
                self._queue = FIFOQueue(-1, int64, shapes=[[]], name=f"{self.name}/sync_token_q")
            updated = self._opt.apply_gradients(taken, global_step)
            if self._averages is not None:
                with control_dependencies([updated]):
                    updated = self._averages.apply(self._averaged)
            with control_dependencies([updated]), colocate_with(global_step.op):
                tokens = fill([self._tokens_per_step], global_step.value())
                given_out = self._queue.enqueue_many(tokens)
            with colocate_with(global_step.op):  # closing the queue waits for no step
                self._runner = QueueRunner(self._queue, [given_out])
            self.chief_init_op = group(*begun)
            with control_dependencies(given):
                token = self._queue.dequeue()
            return group(local_step.assign(token), name=name or f"{self.name}/step")

    def _local_step(self, global_step: Variable) -> Variable:
        """The step that this worker's gradients belong to, a variable beside its operations."""
        with colocate_with(no_op(name=f"{self.name}/worker")):
            step = Variable(
                0,
                trainable=False,
                collections=[GraphKeys.LOCAL_VARIABLES],
                dtype=int64,
                name=f"{self.name}/local_step",
            )
            self.local_step_init_op = step.assign(global_step.value()).op
        return step

    def _accumulator(self, gradient: Any, variable: Variable) -> Any:
        """Shared by the workers, which find it by its name."""
        kind = SparseConditionalAccumulator if isinstance(gradient, IndexedSlices) else ConditionalAccumulator
        shape, name = variable.shape.as_list(), f"{self.name}/{variable.op.name}/grad_accum"
        return kind(variable.dtype, shape, name=name)

    def get_chief_queue_runner(self) -> QueueRunner:
        """Runs the steps, in a thread of the chief. Raises FailedPreconditionError before apply_gradients."""
        if self._runner is None:
            raise FailedPreconditionError(
                "SyncReplicasOptimizer: call minimize or apply_gradients before get_chief_queue_runner"
            )
        return self._runner

    @checked
    def get_init_tokens_op(self, num_tokens: Tokens = -1) -> Operation:
        """The operation with which the chief begins: it gives workers their first tokens.

        num_tokens: by default replicas_to_aggregate. Raises InvalidArgumentError for too few, with which
        workers would wait for ever, and FailedPreconditionError before apply_gradients.
        """
        if self._queue is None or self._global_step is None:
            raise FailedPreconditionError(
                "SyncReplicasOptimizer: call minimize or apply_gradients before get_init_tokens_op"
            )
        count = self._replicas_to_aggregate if num_tokens == -1 else num_tokens
        least = self._replicas_to_aggregate - self._total
        if count < least:
            raise InvalidArgumentError(
                f"SyncReplicasOptimizer: expected at least {least} tokens for {self._total} workers and "
                f"replicas_to_aggregate={self._replicas_to_aggregate}, got {count}"
            )
        if not count:
            return no_op(name=f"{self.name}/no_tokens")
        with self._global_step.graph.as_default(), colocate_with(self._global_step.op):
            return self._queue.enqueue_many(fill([count], self._global_step.value()))

    @checked
    def make_session_run_hook(self, is_chief: Flag, num_tokens: Tokens = -1) -> SessionRunHook:
        """The hook that every worker's monitored session needs. num_tokens: see `get_init_tokens_op`."""
        return _SyncReplicasHook(self, is_chief, num_tokens)

    @checked
    def get_slot(self, variable: AsVariable, name: str) -> Variable | None:
        """The optimiser's slot."""
        return self._opt.get_slot(variable, name)

    def get_slot_names(self) -> list[str]:
        """The names of the optimiser's slots."""
        return self._opt.get_slot_names()

    def variables(self) -> list[Variable]:
        """The optimiser's variables."""
        return self._opt.variables()

    def _apply(self, variable: Variable, gradient: Tensor, rate: Tensor) -> Any:
        return self._opt._apply(variable, gradient, rate)


class _SyncReplicasHook(SessionRunHook):
    """Begins a worker's steps, and on the chief the thread that makes them."""

    def __init__(self, optimizer: SyncReplicasOptimizer, is_chief: bool, num_tokens: int):
        self._optimizer, self._is_chief, self._num_tokens = optimizer, is_chief, num_tokens
        self._tokens: Operation | None = None
        self._known = 0  # errors of the chief's thread in earlier sessions

    def begin(self) -> None:
        self._optimizer.get_chief_queue_runner()
        if self._is_chief:
            self._tokens = self._optimizer.get_init_tokens_op(self._num_tokens)

    def after_create_session(self, session: Session) -> None:
        optimizer = self._optimizer
        session.run(optimizer.chief_init_op if self._is_chief else optimizer.local_step_init_op)
        if self._tokens is not None:
            session.run(self._tokens)
            runner = optimizer.get_chief_queue_runner()
            self._known = len(runner.exceptions_raised)
            runner.create_threads(session, daemon=True, start=True)

    def end(self, session: Session) -> None:
        """Raises the error of the chief's thread, for which the queue of tokens is closed."""
        for error in self._optimizer.get_chief_queue_runner().exceptions_raised[self._known :]:
            raise error
