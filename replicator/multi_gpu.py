"""Replicator for several devices of one process, with several replicas on each."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from replicator.base import Replicator
from replicator.dataset_inputs import OnDevice
from replicator.input_functions import PER_REPLICA, InputFunction, InputOptions, Replication, SmallerBatch
from replicator.lockstep_loop import AUTO
from replicator.tuning import tuned
from scheduler import Synchronisation
from scheduler.averaging.synchronisation import FUSED, OnNan, modes_on
from scheduler.replicas.replica_counts import TunedCounts, replica_counts
from scheduler.replicas.replica_seeds import Seeds
from tensorbow.devices import AsDevices, available_devices
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnimplementedError
from tensorbow.kinds import Count, Function, Positive, PositiveNumber, checked

MOST, WINDOW_SECONDS, MAX_SECONDS = 16, 0.3, 20.0  # of `tune`


class MultiGpuReplicator(Replicator):
    """Replicas on several GPUs, or virtual CPU devices, synchronised every `tau` steps.

    With `ssgd` all replicas take the same step, on the mean of their gradients, as TF-Replicator does. With
    `sma` each replica takes its own step and is pulled towards the central average model z; `easgd` is
    elastic averaging SGD. With `diloco` replicas take tau steps of their own, and then z takes an outer one.
    With `none` they are independent. `Synchronisation` describes the other options.
    """

    @checked
    def __init__(
        self,
        devices: AsDevices | None = None,
        replicas_per_gpu: TunedCounts = 1,
        sync: str | None = None,
        *,
        num_gpus: Positive | None = None,
        num_gpus_per_replica: Positive = 1,
        tau: int | None = None,
        alpha: float | None = None,
        mu: float = 0.0,
        outer_learning_rate: float = 0.7,
        outer_momentum: float = 0.6,
        exchange_dtype: str | None = None,
        staleness: int = 0,
        clear_velocity: bool = False,
        ssgd_from: int | None = None,
        dispatch: str = "round_robin",
        backup: Count = 0,
        ema: float | None = None,
        on_nan: OnNan = "stop",
        replica_mode: str = "auto",
        seeds: Seeds | None = None,
    ):
        """devices: names or devices; default: all GPUs, or the CPU if there is none.
        num_gpus: in place of devices, so many GPUs, from /gpu:0 on.
        num_gpus_per_replica: with several, each replica spans so many of the devices, which `logical_device`
            places its ops on (TF-Replicator, section 3.3); replicas_per_gpu then counts for groups of them.
        replicas_per_gpu: one count for all devices, one per device, or "auto": the first call of `train` or
            `run` begins with `tune`, with its own arguments; that takes 20 seconds at most, and calls
            input_fn anew for each number.
        sync: default: `ssgd` for several devices, of all workers, with one replica each or with backup, else
            `sma`; `sma` also with "auto", or where an option of averaging or dispatch `fcfs` is given.
        dispatch: `fcfs`, for `train`: inputs go to the replica that is free first (Crossbow, VLDB 2019,
            section 4), so that a fast one takes more. Replicas wait for each other at each averaging, so give
            a tau greater than 1, or sync `none`. Not reproducible. Refused for steps on the mean gradient,
            with a collective, or with `tb.replica_id` or `tb.per_replica`, for replicas of several GPUs, and
            for `run` of a step that trains, which waits for all replicas each time; evaluations can be run.
        backup: for `train` with `ssgd`: so many of a step's gradients are not waited for (OSDI 2016, 4.4).
            A step's results are of the replicas whose gradients counted, `[num_replicas - backup, ...]`.
            Not reproducible. Refused for a step with a collective, for `run` of a step that trains, and for
            replicas of several GPUs.
        replica_mode: as of `Synchronisation`; with "auto", `tune` measures both and takes the faster one for
            all steps that can be fused; without it, replicas are captured.
        seeds: with sync `none`, one for each replica, of its initial values and random ops: replica i has the
            bits of a Replicator with one replica and the i-th seed, under the same `tb.set_random_seed`.

        Raises InvalidArgumentError for options out of range, NotFoundError for a missing device.
        """
        devices = _devices(devices, num_gpus)
        averaging: dict[str, Any] = {
            "tau": tau,
            "alpha": alpha,
            "mu": mu,
            "outer_learning_rate": outer_learning_rate,
            "outer_momentum": outer_momentum,
            "exchange_dtype": exchange_dtype,
            "staleness": staleness,
            "clear_velocity": clear_velocity,
            "ssgd_from": ssgd_from,
        }
        more: dict[str, Any] = {"dispatch": dispatch, "backup": backup, "ema": ema}
        more["replica_mode"] = replica_mode
        self._is_auto = isinstance(replicas_per_gpu, str)
        given = 1 if isinstance(replicas_per_gpu, str) else replicas_per_gpu
        counts = replica_counts(given, max(1, len(devices) // num_gpus_per_replica))
        of_workers = self.workers.all_gather(max(counts))  # each calls it, whatever its options are
        if sync is None and (self._is_auto or backup):
            sync = "ssgd" if backup else "sma"
        if sync is None:
            plain = Synchronisation(**averaging, dispatch=dispatch) == Synchronisation()
            several = len(counts) * self.workers.size > 1
            sync = "ssgd" if plain and several and max(of_workers) == 1 else "sma"
        options, defaults = Synchronisation(sync, **averaging, **more), Synchronisation()
        ignored = [name for name in averaging if getattr(options, name) != getattr(defaults, name)]
        if options.sync in ("ssgd", "none") and ignored:
            given_options = ", ".join(f"{name}={averaging[name]}" for name in ignored)
            warnings.warn(
                f"MultiGpuReplicator: {given_options}: ignored, as sync={options.sync!r} averages no models",
                stacklevel=3,
            )
        super().__init__(devices, given, options, on_nan, seeds, num_gpus_per_replica)

    @checked
    def tune(
        self,
        step_fn: Function,
        input_fn: InputFunction | None = None,
        input_replication: Replication = PER_REPLICA,
        input_split_fn: Function | None = None,
        *,
        smaller_batch: SmallerBatch = "error",
        prefetch: Count = 1,
        data_on_device: OnDevice = "auto",
        most: Positive = MOST,
        window_seconds: PositiveNumber = WINDOW_SECONDS,
        max_seconds: PositiveNumber = MAX_SECONDS,
    ) -> int:
        """Chooses the number of replicas per device, and on GPUs their mode, by the steps per second that it
        trains with each.

        Trains with 1, 2, 3, ... replicas on each device, from the initial values and with the options of
        this Replicator, and stays at the smallest number that is within 5 % of the fastest (Crossbow, VLDB
        2019, section 4). On GPUs it goes on from there with fused replicas, if the step's can be fused (see
        `replica_mode`), and takes the faster mode. What it trains is thrown away; `input_fn` is called anew
        for each number.

        step_fn ... data_on_device: as of `train`; step_fn makes its variables itself. most: greatest number
        to try. window_seconds: least length of each measurement, at most max_seconds. max_seconds: time
        after which it decides with what it has measured, and warns that it is not sure.
        Several workers train together, and decide on one number, for the devices of all of them: a step takes
        as long as on the slowest, and what does not fit on one fits on none.
        Returns the number, which the Replicator then has; its `repr` says the mode.
        Raises FailedPreconditionError for a Replicator with steps, variables or seeds, InvalidArgumentError
        for inputs of fewer than 4 batches, and what training raises; the number is then as before.
        """
        given = input_fn, input_replication, input_split_fn, smaller_batch, prefetch, data_on_device
        return self._tune(step_fn, InputOptions(*given), most, window_seconds, max_seconds)

    def _tune(
        self,
        step_fn: Any,
        options: InputOptions,
        most: int = MOST,
        window_seconds: float = WINDOW_SECONDS,
        max_seconds: float = MAX_SECONDS,
    ) -> int:
        if self._running.steps or self.graph.get_operations():
            raise FailedPreconditionError(
                "tune: expected a Replicator without steps and variables, which training anew would lose; "
                "make variables in step_fn, and call tune first"
            )
        if self.seeds is not None:
            raise FailedPreconditionError("tune: replicas with seeds stay as many; leave seeds out")
        before, was_auto = self.replicas_per_device, self._is_auto
        self._is_auto = False
        trained: list[Any] = []

        def stop() -> None:
            self._running.abandon_loops()  # their rounds need not be exact
            while trained:
                trained.pop().close()

        def begin(count: int, mode: str | None) -> Iterator[Any]:
            stop()
            self._begin_anew((count,) * len(self.replicas_per_device), tried=mode)
            trained.append(self._train(self._loop(self._trace(step_fn, options, AUTO), None, AUTO)))
            return iter(trained[0])

        kinds = {device.kind for device in self.devices}
        modes = (None,) if self.devices_per_replica > 1 else modes_on(kinds, self.synchronisation)
        fused = self._fused
        try:
            decision = tuned(begin, most, window_seconds, max_seconds, modes, workers=self.workers)
            chosen, fused = decision.replicas, decision.mode == FUSED
            before, was_auto = (chosen,) * len(self.replicas_per_device), False
        finally:
            self._is_auto = was_auto  # still, if tuning has failed
            stop()
            self._begin_anew(before, fused=fused)
        if most > 1 and not decision.complete and self.workers.rank == 0:
            warnings.warn(
                f"tune: not sure: {decision.reason}; {chosen} replicas per device were the fastest measured "
                f"so far; give tune a greater max_seconds",
                stacklevel=5,
            )
        return chosen

    def _before_building(self, step_fn: Any, options: InputOptions) -> None:
        if self._is_auto:
            self._tune(step_fn, options)


class TpuReplicator:
    """The name of TF-Replicator's class for TPUs, which TensorBow has not."""

    def __new__(cls, num_workers: int = 1, num_tpu_cores_per_worker: int = 8, **options: Any) -> Any:
        """Raises UnimplementedError, saying what to write."""
        cores = num_workers * num_tpu_cores_per_worker
        raise UnimplementedError(
            f"TpuReplicator: there are no TPU devices; write tb.MultiGpuReplicator(num_gpus={cores}), "
            f'or give devices=[f"/cpu:{{i}}" for i in range({cores})]'
        )


def _devices(devices: Sequence[Any] | None, num_gpus: int | None) -> Sequence[Any]:
    """The given devices, a number of GPUs, or by default all GPUs, or the CPU."""
    if devices is not None and num_gpus is not None:
        raise InvalidArgumentError(
            f"MultiGpuReplicator: expected devices or num_gpus, got {len(devices)} devices and {num_gpus}"
        )
    if devices is not None:
        return devices
    gpus = [found["name"] for found in available_devices() if found["kind"] == "gpu"]
    if num_gpus is None:
        return gpus or ["/cpu:0"]
    if num_gpus > len(gpus):
        raise NotFoundError(
            f"MultiGpuReplicator: expected num_gpus of at most {len(gpus)}, the GPUs of this machine, got "
            f'{num_gpus}; for virtual CPU devices give devices=[f"/cpu:{{i}}" for i in range({num_gpus})]'
        )
    return gpus[:num_gpus]
