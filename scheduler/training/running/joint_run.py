"""Collective work of a job's workers in a training run: sums, and the parts of checkpoints."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scheduler.averaging.round_variants import RoundVariants
from scheduler.averaging.synchronisation import Synchronisation
from scheduler.training.measures.tally import Tally
from scheduler.workers.joint_calls import JointCalls
from tensorbow.compiler import VariableLayout
from tensorbow.errors import DataLossError, InvalidArgumentError, TensorBowError
from tensorbow.specs import Array
from tensorbow.training import (
    Checkpoint,
    RollingCheckpoints,
    delete_parts,
    load_arrays,
    part_path,
    save_arrays,
)

MODEL_PREFIX = "model/"  # of the central model's variables in a checkpoint of several workers
WORKERS, SAVE, COUNTS, JOINT = "workers", "save", "replica_counts", "joint"  # keys of a checkpoint's metadata
SUMS = (
    "images",
    "epoch_loss",
    "epoch_losses",
    "epoch_images",
    "skipped_updates",
)  # of a tally's own replicas


class JointRun:
    """Sums over the workers of a training run, and the parts of their checkpoints; collective."""

    def __init__(self, joint: JointCalls):
        self._joint = joint

    def replicas(self, own: int) -> tuple[int, int]:
        """(first, all): number of this worker's first replica, and replicas of all workers."""
        counts = self._joint.all(own)
        return sum(counts[: self._joint.workers.rank]), sum(counts)

    def tally(self, own: Tally) -> Tally:
        """The tally over the replicas of all workers."""
        if self._joint.size == 1:
            return own
        every = self._joint.all(own)
        sums = {name: sum(getattr(each, name) for each in every) for name in SUMS}
        names = every[0].epoch_sums
        by_metric = {name: sum(each.epoch_sums.get(name, 0.0) for each in every) for name in names}
        return replace(own, **sums, epoch_sums=by_metric)

    # Checkpoints --------------------------------------------------------------------------------------

    def save(
        self,
        folder: Path,
        arrays: Mapping[str, Array],
        model: Mapping[str, Array],
        metadata: dict[str, Any],
        joint: Tally,
        commit: Callable[[Mapping[str, Array], dict[str, Any]], None],
    ) -> None:
        """Writes a checkpoint: first each other worker's part, then by `commit` that of worker 0.

        The file of worker 0 is the mark that the checkpoint is whole: it is written when all parts are on
        disk, and each part belongs to one such file. Others are never read, and are deleted later.
        arrays: the state of this worker's replicas. model: z, from which other numbers of workers go on.
        Raises, on all workers, the error of one that cannot write; the checkpoint does not exist then.
        """
        number, round = self._joint.workers.rank, metadata["round"]
        mark = self._joint.agreed(secrets.token_hex(8))
        own = {**metadata, WORKERS: self._joint.size, SAVE: mark}

        def save_part() -> None:
            if number:
                save_arrays(part_path(folder, round, number), arrays, {**own, "worker": number})

        self._joint.by_all(save_part)
        named = {f"{MODEL_PREFIX}{name}": value for name, value in model.items()}
        own[JOINT] = joint.to_metadata()
        self._joint.by_first(lambda: commit({**arrays, **named}, own))
        kept = self._joint.agreed([at for at, _ in RollingCheckpoints(folder).paths()])
        delete_parts(folder, kept, number)

    def restored(self, found: Checkpoint | None) -> tuple[Checkpoint | None, str]:
        """The checkpoint of this worker, and why the run can only go on from z, or "".

        found: that of worker 0. Where the checkpoint is of another number of workers, or a part of it is
        missing or of another save, all workers get that of worker 0, without its arrays but for worker 0.
        """
        shown = self._joint.agreed(None if found is None else (found.path, found.metadata))
        if shown is None:
            return None, ""
        path, metadata = shown
        before = metadata.get(WORKERS, 1)
        mine = found or Checkpoint(path, {}, metadata)
        if before != self._joint.size:
            workers = "1 worker" if before == 1 else f"{before} workers"
            return mine, f"{path} is of {workers}, and this run has {self._joint.size}"
        problem: str | None = None
        if found is None:
            own = part_path(path.parent, metadata["round"], self._joint.workers.rank)
            try:
                part = Checkpoint(own, *load_arrays(own, remedy=""))
                if part.metadata.get(SAVE) != metadata.get(SAVE):
                    raise DataLossError(f"{own} belongs to another checkpoint than {path}")
                sums = {name: part.metadata[name] for name in (*SUMS, "epoch_sums")}
                mine = Checkpoint(path, part.arrays, {**metadata, **sums})
            except TensorBowError as error:
                problem = str(error)
            except KeyError as error:
                problem = f"{own} lacks {error}"
        problem = self._joint.first_of(problem)
        return mine, "" if problem is None else f"a part of {path} cannot be used: {problem}"


def without_sums(checkpoint: Checkpoint, leads: bool) -> Checkpoint:
    """A checkpoint whose tally is that of all its workers, for worker 0, and has no sums for the others."""
    metadata = {**checkpoint.metadata, **checkpoint.metadata.get(JOINT, {})}
    if not leads:
        metadata |= dict.fromkeys(SUMS, 0) | {"epoch_sums": {}}
    return Checkpoint(checkpoint.path, checkpoint.arrays, metadata)


def own_arrays(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of a checkpoint without the model, which one of several workers has in addition."""
    return {name: value for name, value in arrays.items() if not name.startswith(MODEL_PREFIX)}


def average_of(checkpoint: Checkpoint) -> dict[str, Array]:
    """The moving average of z in a checkpoint, by variable; empty where there is none."""
    arrays = checkpoint.arrays.items()
    return {name.removeprefix("ema/"): value for name, value in arrays if name.startswith("ema/")}


def model_of(
    checkpoint: Checkpoint, layout: VariableLayout, options: Synchronisation, replicas: int
) -> dict[str, Array]:
    """Variables of the central model in a checkpoint of any number of workers.

    replicas: of the checkpoint's run. Raises InvalidArgumentError where replicas are independent,
    DataLossError if a variable is missing.
    """
    if options.sync == "none":
        raise InvalidArgumentError(
            f"{checkpoint.path}: independent replicas (sync none) go on with as many workers as they had; "
            "start as many, or anew in another --output"
        )
    arrays, found = checkpoint.arrays, dict[str, Array]()
    newest = 0
    if options.z_copies(replicas):
        newest = RoundVariants(options, replicas).newest_copy(checkpoint.metadata["round"] - 1)
    for op in layout.variables:
        name = op.name
        if op.attrs["role"] == "slots":
            continue
        places = (f"{MODEL_PREFIX}{name}", f"central{newest}/{name}", f"replica0/{name}")
        value = next((arrays[place] for place in places if place in arrays), None)
        if value is None:
            raise DataLossError(f"{checkpoint.path} has no value of {name}; use an earlier checkpoint")
        of_each = [
            arrays[f"replica{index}/{name}"]
            for index in range(replicas)
            if f"replica{index}/{name}" in arrays
        ]
        if places[0] not in arrays and op.attrs["combine"] in ("mean", "sum"):
            value = sum(of_each[1:], start=of_each[0].copy())
            if op.attrs["combine"] == "mean":
                value = value / value.dtype.type(len(of_each))
        found[name] = value
    return found
