"""A sweep from its first member to its best: waves of members, comparisons, checkpoints, results."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scheduler.averaging.synchronisation import FREEZE
from scheduler.decisions.halving import Score, SuccessiveHalving
from scheduler.options import options_of
from scheduler.sweeps.ensemble import export_ensemble, require_ensemble
from scheduler.sweeps.folder import BEST, ENSEMBLE, SweepFolder, default_folder
from scheduler.sweeps.member_data import MemberEvaluators, SweepData
from scheduler.sweeps.members import (
    DIVERGED,
    ENDED,
    FINISHED,
    PAUSED,
    STOPPED,
    TRAINING,
    WAITING,
    Member,
    grouped,
    members_of,
    ranked,
)
from scheduler.sweeps.options import DEFAULT_PLACES, ENSEMBLE_MEMBERS, HELD_OUT, SweepOptions
from scheduler.sweeps.pictures import draw_sweep
from scheduler.sweeps.pool import MemberPool, draws_in_steps
from scheduler.sweeps.report import best_lines, ensemble_lines, text_of
from scheduler.sweeps.search_space import (
    OF_RUNS,
    Range,
    configurations,
    plain_values,
    with_required,
)
from scheduler.sweeps.summary import (
    VALIDATION,
    ConfigurationSummary,
    figures_of,
    headline,
    summaries,
)
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.option_kinds import metric_and_mode
from scheduler.training.configuration.precision import PrecisionSetting
from scheduler.training.folders.run_data import GIVEN, warn_of_data
from scheduler.training.models.classifier_step import build_step
from scheduler.training.models.given_weights import given_weights, weights_key
from scheduler.training.models.trained_model import TrainedModel
from scheduler.training.running.callbacks import require_figure
from scheduler.workers.group import LoneWorker, WorkerGroup
from scheduler.workers.joint_calls import JointCalls
from scheduler.workers.pulse import doing
from tensorbow.devices import get_device
from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import Array
from tensorbow.training import finite_values

# Options of which no result depends, so that a sweep may go on with others.
NOT_COMPARED = ("devices", "data_dir", "launch_ahead", "steps_per_launch", "data_on_device")
_logger = logging.getLogger("tensorbow.sweeps")
TOLD_S = 10.0  # seconds between two lines of progress


class Sweep:
    """Trains all members of a sweep, as many side by side as there are places. Use it with `with`.

    Each member has the bits of `tensorbow train` with its options, one replica and its seed. The workers of a
    job share the members out, and go through epochs together: each knows the state of all members, and worker
    0 writes the folder.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        grid: Mapping[str, Sequence[Any]],
        ranges: Mapping[str, Range | Sequence[Any]],
        options: SweepOptions,
        output: str | Path | None,
        *,
        resume: bool = False,
        data: Any = None,
        say: Callable[[str], None] = lambda line: None,
        workers: WorkerGroup | None = None,
    ):
        """base: options of `TrainingConfig` that all members share; `seed` is the first one.

        output: folder; None for a new one below runs. data: see `Trainer`. say: called with lines about the
        progress, in worker 0. workers: of the job; default: this process alone. Collective, as `run`.
        Raises InvalidArgumentError for options that are not allowed, and what `SweepFolder` and the data set
        raise.
        """
        self.options, self.joint = options, JointCalls(workers or LoneWorker())
        self._say: Callable[[str], None] = say if self.joint.leads else lambda line: None
        if base.get("on_nan") == FREEZE:  # as every sweep does
            base = {name: value for name, value in base.items() if name != "on_nan"}
        for name in base:
            if name in OF_RUNS:
                raise InvalidArgumentError(
                    f"{name}: expected none in a sweep, whose members are independent runs of one replica; "
                    "leave it out"
                )
        self.base = {"validation_split": HELD_OUT, **base, "replicas_per_device": 1}
        seed = options_of(TrainingConfig)["seed"].read(self.base.get("seed", 0))
        choices = configurations(grid, ranges, options.random, seed)
        config = with_required(self.base, choices[0])
        self.data_name = config.data_name if data is None else GIVEN
        self.members = members_of(self.base, choices, options.seeds)
        for epochs in {member.config.epochs for member in self.members}:
            if epochs != int(epochs):
                raise InvalidArgumentError(
                    "epochs: expected a whole number in a sweep, which compares members after each, got "
                    f"{epochs}"
                )
        self.swept = [*dict.fromkeys(name for each in choices for name in each)]
        self.ensemble_figures: dict[str, float] = {}  # of worker 0, like the members' figures
        self._stopping = False
        self._pool: MemberPool | None = None
        self._halving = SuccessiveHalving(options.halving_epochs, options.halving_factor)
        described = {
            "options": {n: v for n, v in config.to_dict().items() if n not in (*OF_RUNS, *NOT_COMPARED)},
            "grid": plain_values(grid),
            "ranges": {
                name: str(own) if isinstance(own, Range) else own
                for name, own in plain_values(ranges).items()
            },
            "sweep": {name: value for name, value in asdict(options).items() if name != "checkpoint_seconds"},
        }
        self._precision = PrecisionSetting([get_device(name) for name in config.devices], config.compute)
        self._data: SweepData | None = None
        self._folder: SweepFolder | None = None  # of worker 0
        self.path = self.joint.by_first(
            lambda: self._open_folder(
                default_folder(config) if output is None else Path(output), described, resume
            )
        )
        try:
            self._data = SweepData(config, data, self.data_name, self._say)
            if self.joint.leads:
                warn_of_data(config, self._data.train)
            self._groups = self._grouped()
            self._require_compared(config)
            if options.ensemble:
                require_ensemble(self.data.stored(self.members[0]), len(self.members))
        except BaseException:
            if not resume and self._folder is not None:
                self._folder.forget()
            self.close()
            raise

    def _open_folder(self, path: Path, described: Mapping[str, Any], resume: bool) -> Path:
        self._folder = SweepFolder(path, described, resume)
        return path

    @property
    def folder(self) -> SweepFolder:
        """The output folder, in worker 0."""
        assert self._folder is not None
        return self._folder

    def _grouped(self) -> list[list[Member]]:
        """Members by compiled step, apart by seed where the step itself draws random numbers."""
        found: list[list[Member]] = []
        warnings: dict[str, None] = {}
        for group in grouped(self.members):
            program, _ = build_step(group[0].config, self.data.train, 1.0)
            for key, config in {weights_key(member.config): member.config for member in group}.items():
                given = given_weights(config, program.graph)  # raises for what does not fit
                if given is not None:
                    warnings[given.warning] = None
                    of_these = [member.number for member in group if weights_key(member.config) == key]
                    self.data.torch_names |= dict.fromkeys(of_these, given.entries)
            if draws_in_steps(program):
                seeds = dict.fromkeys(member.seed for member in group)
                found += [[member for member in group if member.seed == seed] for seed in seeds]
            else:
                found.append(group)
        for warning in filter(None, warnings if self.joint.leads else ()):
            _logger.warning("%s", warning)
        return found

    def _require_compared(self, config: TrainingConfig) -> None:
        """Raises InvalidArgumentError for a `best_metric` that is no figure of the validation examples."""
        if config.best_metric is not None:
            known = [f"{VALIDATION}{name}" for name in self.data.figures(config)]
            require_figure("best_metric", metric_and_mode(config.best_metric)[0], known)

    @property
    def data(self) -> SweepData:
        """The data set's splits, and their evaluation."""
        assert self._data is not None
        return self._data

    @property
    def best(self) -> Member | None:
        """The best member of those that trained to their end, by validation data."""
        return next(iter(ranked(self.members)), None)

    @property
    def summaries(self) -> list[ConfigurationSummary]:
        """The configurations with their members over the seeds, the best first."""
        return summaries(self.members)

    @property
    def kept(self) -> list[Member]:
        """The best members so far, whose weights are kept; the best first."""
        most = self.options.keep
        if self.options.ensemble:
            most = max(most, ENSEMBLE_MEMBERS)
        return ranked(self.members)[:most]

    def request_stop(self) -> None:
        """Ends `run` after the current launch, with a checkpoint; callable from a signal handler."""
        self._stopping = True
        if self._pool is not None:
            self._pool.request_stop()

    # Running --------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Trains what is left; False if a stop was requested while members had not ended.

        In either case writes the results, and the best member so far as the folder of a run.
        """
        first_stage, first = self._restore()
        self._saved = self._told = time.perf_counter()
        stages = self._stages()
        if len(self._groups) > 1:
            self._say(self._steps_text(stages))
        for stage in range(first_stage, len(stages)):
            if not all(self._run_group(stage, number) for number in range(first, len(self._groups))):
                break
            self._compare(stages[stage])
            first = 0
        finished = all(member.status in ENDED for member in self.members)
        self.joint.by_first(lambda: self._finish(finished))
        return finished

    def _stages(self) -> list[int | None]:
        """Epochs at which all groups wait for each other to be compared, and None for the end."""
        if not self.options.halving or len(self._groups) == 1:
            return [None]
        return [*self._halving.rungs_before(max(int(member.config.epochs) for member in self.members)), None]

    def _steps_text(self, stages: Sequence[int | None]) -> str:
        text = f"{len(self.members):,} members in {len(self._groups)} compiled steps, one after the other"
        rungs = ", ".join(str(epoch) for epoch in stages if epoch is not None)
        return f"{text}; at epoch {rungs} all wait to be compared" if rungs else text

    def _compare(self, epoch: int | None) -> None:
        """Stops the worst of the members of all groups that wait after an epoch."""
        if epoch is not None:
            self._halve([each for each in self.members if each.status == PAUSED and each.epochs == epoch])

    def _restore(self) -> tuple[int, int]:
        """Takes the state of a sweep that is resumed; the stage and the group to go on with."""
        saved = self._folder.state if self._folder is not None else None
        state = self.joint.agreed(None if saved is None else saved[1])
        if state is None:
            return 0, 0
        for member, own in zip(self.members, state["members"], strict=True):
            member.load(own)
        self._halving.load(state["rungs"])
        return int(state.get("stage", 0)), int(state["group"])

    def _run_group(self, stage: int, number: int) -> bool:
        """Trains a group's members that are left, to the end of the stage; False if a stop was requested."""
        until = self._stages()[stage]

        def is_left(member: Member) -> bool:
            waits = until is not None and member.status == PAUSED and member.epochs >= until
            return not waits and member.status not in ENDED

        left = [member for member in self._groups[number] if is_left(member)]
        if not left:
            return True
        config, joint = left[0].config, self.joint
        begun = [member for member in left if member.status == TRAINING]
        places = self.options.at_once or DEFAULT_PLACES * len(config.devices) * joint.size
        places = max(min(places, len(left)), len(begun))  # there may have been more workers
        rank, size = joint.workers.rank, joint.size
        places = places // size + (rank < places % size)
        pool = self._pool = MemberPool(config, self.data.train, places, self._say) if places else None
        evaluators = self.data.evaluators(config)
        try:
            if begun:
                saved = joint.agreed(None if self._folder is None else self._folder.state)
                if pool is not None and saved is not None:
                    pool.load(begun[rank::size], *_part_of(saved, begun[rank::size]))
                del saved
            if self._folder is not None:
                self._folder.state = None  # its arrays are copied
            while not self._to_stop():
                self._fill(
                    pool, [each for each in left if each.status in (WAITING, PAUSED) and is_left(each)]
                )
                if not joint.any(pool is not None and bool(pool.members)):
                    return True
                if self._train(pool):
                    self._end_epoch(pool, evaluators, until)
                since = joint.agreed(time.perf_counter() - self._saved)
                if self._to_stop() or since >= self.options.checkpoint_seconds:
                    self._save(stage, number, pool)
            return False
        finally:
            self._pool = None
            evaluators.close()
            if pool is not None:
                pool.close()

    def _to_stop(self) -> bool:
        """True if a stop was requested of some worker."""
        self._stopping = self.joint.any(self._stopping)
        return self._stopping

    def _fill(self, pool: MemberPool | None, waiting: Sequence[Member]) -> None:
        """Gives free places to members that wait, in their order; each to the worker with most of them."""
        own = 0 if pool is None or pool.offset else pool.free
        free = [*enumerate(self.joint.all(own))]
        for member in waiting:
            rank, most = max(free, key=lambda each: (each[1], -each[0]))
            if not most:
                break
            free[rank] = rank, most - 1
            values = self._paused_values(member) if member.status == PAUSED else None
            member.status = TRAINING
            if pool is not None and rank == self.joint.workers.rank:
                pool.add(member, values)

    def _paused_values(self, member: Member) -> dict[str, Array]:
        return self.joint.by_first(lambda: self.folder.paused_values(member))

    def _train(self, pool: MemberPool | None) -> bool:
        """Trains to the end of the epoch; False if a stop was requested before, then all are equally far."""
        trains = pool is not None and bool(pool.members)
        if pool is not None and trains:
            pool.train()
        while True:
            own = [(pool.offset, pool.rounds_per_epoch)] if pool is not None and trains else []
            offsets = self.joint.gathered(own)
            furthest, epoch = max(offsets)
            if min(offsets)[0] == furthest:
                return furthest == epoch
            if pool is not None and trains and pool.offset < furthest:
                pool.train(furthest)

    def _end_epoch(self, pool: MemberPool | None, evaluators: MemberEvaluators, until: int | None) -> None:
        """Evaluates all members after their epoch; those that end, or wait now, leave their places.

        until: the epoch after which members wait, or None.
        """
        results = pool.end_epoch() if pool is not None and pool.members else []
        sound = [result.member for result in results if not result.diverged]
        models = [pool.values(member) for member in sound] if pool is not None else []
        with doing("evaluating"):
            evaluations = evaluators.evaluate("validation", models)
        found = dict(zip([member.number for member in sound], evaluations, strict=True))
        own = list[tuple[int, dict[str, Any]]]()
        for figures, member, diverged in results:
            evaluation, status = found.get(member.number), member.status
            if diverged or evaluation is None or not math.isfinite(evaluation.loss):
                status = DIVERGED
            elif member.epochs == member.config.epochs:
                status = FINISHED
            known = {**figures} | ({} if evaluation is None else figures_of("validation", evaluation))
            progress = {"epochs": member.epochs, "rounds": member.rounds}
            own.append((member.number, {"status": status, "figures": known, **progress}))
        told = sorted(self.joint.gathered(own), key=lambda each: each[0])
        for number, state in told:
            for name, value in state.items():
                setattr(self.members[number], name, value)
        now = [self.members[number] for number, _ in told]
        curves = [{"member": each.number, "epoch": each.epochs, **each.figures} for each in now]
        self.joint.by_first(lambda: self.folder.add_curves(curves))
        training = [member for member in now if member.status == TRAINING]
        for member in training:
            if member.epochs == until:
                member.status = PAUSED
        if self.options.halving and until is None and len(self._groups) == 1:
            self._halve(training)
        self._let_go(pool, evaluators, [member for member in now if member.status in (*ENDED, PAUSED)])
        self._tell()

    def _halve(self, members: Sequence[Member]) -> None:
        """Stops the worst of the members that have come to a rung."""
        at_rungs: dict[int, dict[int, Score]] = {}
        for member in members:
            if self._halving.is_rung(member.epochs):
                at_rungs.setdefault(member.epochs, {})[member.number] = member.score
        for epoch, scores in sorted(at_rungs.items()):
            for number in self._halving.stopped(epoch, scores):
                self.members[number].status = STOPPED

    def _let_go(self, pool: MemberPool | None, evaluators: MemberEvaluators, ended: Sequence[Member]) -> None:
        """Tests members that have ended or wait, keeps the weights of the best and of those that wait, and
        frees their places.
        """
        here = [] if pool is None else [member for member in ended if member in pool.members]
        tested = [member for member in here if member.status != DIVERGED]
        values = [pool.values(member) for member in tested] if pool is not None else []
        with doing("evaluating"):
            results = [*zip(tested, evaluators.evaluate("test", values), strict=True)]
        for number, figures in self.joint.gathered(
            [(member.number, figures_of("test", result)) for member, result in results]
        ):
            self.members[number].figures |= figures
        best = {member.number for member in self.kept}
        named = {
            member.number: own for member, own in zip(tested, values, strict=True) if member.number in best
        }
        self.joint.by_first_with(named, self._save_members)
        paused = [member for member in here if member.status == PAUSED]
        own = {member.number: pool.all_values(member) for member in paused} if pool is not None else {}
        self.joint.by_first_with(own, self._save_paused)
        for member in here:
            if pool is not None:
                pool.remove(member)

    def _save_members(self, values: Sequence[Mapping[int, Mapping[str, Array]]]) -> None:
        """Writes the weights of members, given by worker."""
        for number, own in sorted({n: own for each in values for n, own in each.items()}.items()):
            self.folder.save_member(number, own, self.data.about(self.members[number]))

    def _save_paused(self, values: Sequence[Mapping[int, Mapping[str, Array]]]) -> None:
        """Writes all variables of members that wait, given by worker."""
        for number, own in sorted({n: own for each in values for n, own in each.items()}.items()):
            self.folder.save_paused(self.members[number], own)

    def _tell(self) -> None:
        """Says how far the sweep is, now and then."""
        if time.perf_counter() - self._told < TOLD_S:
            return
        self._told = time.perf_counter()
        ended = sum(member.status in ENDED for member in self.members)
        training = sum(member.status == TRAINING for member in self.members)
        best = self.best
        paused = sum(member.status == PAUSED for member in self.members)
        waiting = f", {paused} wait for a comparison" if paused else ""
        figures = f"; best so far: member {best.number}, {text_of(best)}" if best is not None else ""
        of_all = f"{ended:,} of {len(self.members):,} members have ended"
        self._say(f"{of_all}, {training} are training{waiting}{figures}")

    # Saving ---------------------------------------------------------------------------------------

    def _save(self, stage: int, group: int, pool: MemberPool | None) -> None:
        """Writes a checkpoint."""
        own = ({}, {"offset": 0, "places": {}}) if pool is None or not pool.members else pool.state()
        rungs = self._halving.state()

        def save(states: Sequence[tuple[Mapping[str, Array], Mapping[str, Any]]]) -> None:
            arrays = {name: value for own, _ in states for name, value in own.items()}
            places = {number: place for _, own in states for number, place in own["places"].items()}
            offset = max(own["offset"] for _, own in states)
            of_pool = {"offset": offset, "places": places}
            self._save_state(arrays, rungs=rungs, stage=stage, group=group, pool=of_pool)
            self.folder.save_results(self.members, self.swept)

        self.joint.by_first_with(own, save)
        self._saved = time.perf_counter()

    def _save_state(self, arrays: Mapping[str, Array], **state: Any) -> None:
        """Writes the state, and then deletes the weights that it does not need."""
        self.folder.save_state(arrays, {"members": [member.state() for member in self.members], **state})
        self.folder.keep_only({member.number for member in self.kept})
        self.folder.keep_only_paused(member for member in self.members if member.status == PAUSED)

    def _finish(self, finished: bool) -> None:
        """Writes results, the best member and the ensemble."""
        if finished:
            self._save_state({}, rungs={}, stage=len(self._stages()), group=len(self._groups), pool={})
        self.folder.save_results(self.members, self.swept)
        if self.best is not None:
            self.folder.save_best(self.best, *self.data.described(self.best))
            if self.options.ensemble and len(self.kept) > 1:
                self._export_ensemble()
            elif self.options.ensemble:
                stopped = ", or leave halving out" if self.options.halving else ""
                self._say(
                    "no ensemble: fewer than two members have trained to their end; give more "
                    f"configurations or seeds{stopped}"
                )

    def kept_values(self) -> dict[int, dict[str, Array]]:
        """The weights of the members that are kept, by number; in worker 0."""
        return {member.number: self.folder.member_values(member.number) for member in self.kept}

    def draw(self) -> list[Path]:
        """Draws the pictures, if matplotlib is installed; their files."""
        config = self.members[0].config
        what = f"{config.source.name} on {self.data_name}"
        batch = "" if "batch_size" in self.swept else f", batch {config.batch_size}"
        title = f"{what}, {len(self.members):,} members{batch}"
        return draw_sweep(self.members, self.folder.curves(), self.swept, self.folder.path, title)

    def _export_ensemble(self) -> None:
        """Writes the mean of the probabilities of the members that are kept as an exported model."""
        members = self.kept
        stored = [self.data.stored(member) for member in members]
        values = [self.folder.member_values(member.number) for member in members]
        path = self.folder.path / ENSEMBLE
        export_ensemble(path, stored, values)
        device = self.members[0].config.devices[0]
        with doing("evaluating the ensemble"), TrainedModel(path, device=device) as model:
            for split, data in self.data.evaluated.items():
                self.ensemble_figures |= figures_of(split, model.evaluate(data))

    def best_lines(self) -> list[str]:
        """Lines about the best member, and about the ensemble; none before a member has finished."""
        best, measure = self.best, headline(self.members)
        if best is None:
            return []
        lines = best_lines(best, measure, self.path / BEST)
        if self.ensemble_figures:
            path = self.path / ENSEMBLE
            lines += ensemble_lines(path, len(self.kept), self.ensemble_figures, best, measure)
        return lines

    def facts(self) -> dict[str, Any]:
        """The sweep as JSON values: all members, and the best one's number."""
        best = self.best
        return {
            "folder": str(self.path),
            "swept": self.swept,
            "best": None if best is None else best.number,
            "ensemble": finite_values(self.ensemble_figures) or None,
            "members": [member.row() for member in self.members],
        }

    def close(self) -> None:
        """Frees memory and unlocks the folder; idempotent."""
        self._precision.close()
        if self._folder is not None:
            self._folder.close()

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _part_of(
    saved: tuple[Mapping[str, Array], Mapping[str, Any]], members: Sequence[Member]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and places of some members in the state of a sweep."""
    arrays, state = saved
    numbers = {str(member.number) for member in members}
    return {n: value for n, value in arrays.items() if n.partition("/")[0] in numbers}, state["pool"]
