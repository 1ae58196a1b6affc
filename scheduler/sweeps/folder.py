"""Output folder of a sweep: options, results, curves, the state to go on from, and models."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from scheduler.options import shortened
from scheduler.sweeps.members import Member
from scheduler.sweeps.search_space import read_range
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.config_file import config_text
from scheduler.training.folders.output_folders import first_output, numbered_folders
from scheduler.training.folders.run_data import GIVEN
from scheduler.training.folders.run_folder import (
    CONFIG,
    GIVEN_BY_PROGRAM,
    GRAPH_FILE,
    METRICS,
    MODEL,
    lock_folder,
)
from tensorbow.errors import DataLossError, FailedPreconditionError, NotFoundError
from tensorbow.files import append_to_file, read_file, remove_unfinished, write_file
from tensorbow.specs import Array
from tensorbow.strict_json import parse_json
from tensorbow.training import load_arrays, record_line, save_arrays
from tensorbow.training.checkpoints import make_folder

OPTIONS, RESULTS, CURVES, STATE = "sweep.json", "results.csv", "curves.jsonl", "state.safetensors"
MOST_BYTES, MOST_VALUES = 1 << 24, 1 << 20  # of the file of options
MOST_CURVES = 1 << 30  # bytes of the curves
BEST, MEMBERS, ENSEMBLE, PAUSED_MEMBERS = "best", "members", "ensemble", "paused"


def read_options_file(path: Path) -> dict[str, Any]:
    """The options that the sweep in a folder was begun with. Raises NotFoundError or DataLossError."""
    if not (path / OPTIONS).is_file():
        raise NotFoundError(f"{path} holds no sweep to go on with: there is no {OPTIONS}; give its folder")
    try:
        saved: dict[str, Any] = parse_json(read_file(path / OPTIONS, MOST_BYTES).decode(), MOST_VALUES)
        if all(isinstance(saved[group], dict) for group in ("options", "grid", "ranges", "sweep")):
            return saved
    except (ValueError, KeyError, TypeError):
        pass
    raise DataLossError(f"{path / OPTIONS} is damaged; begin the sweep anew in another folder")


def default_folder(config: TrainingConfig) -> Path:
    """Default output folder of a new sweep: the first free one of runs/sweep-MODEL-DATASET."""
    first = first_output(config)
    folders = numbered_folders(first.with_name(f"sweep-{first.name}"))
    return next(folder for folder in folders if not os.path.lexists(folder))


def saved_sweep(
    output: Path,
    base: Mapping[str, Any],
    grid: Mapping[str, Any],
    ranges: Mapping[str, Any],
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(options of runs, grid, ranges, options of the sweep) of a folder, with those given now.

    Raises NotFoundError for a folder without a sweep, DataLossError for a damaged one.
    """
    saved = read_options_file(output)
    drawn = {
        name: read_range(f"{name}={own}")[1] if isinstance(own, str) else own
        for name, own in saved["ranges"].items()
    }
    return (
        {**saved["options"], **base},
        {**saved["grid"], **grid},
        {**drawn, **ranges},
        {**saved["sweep"], **options},
    )


class SweepFolder:
    """Files of a sweep. Everything but the curves is written atomically; curves are cut back on resuming."""

    def __init__(self, path: Path, options: Mapping[str, Any], resume: bool):
        """Locks the folder, and reads the state of a sweep that is resumed.

        Raises FailedPreconditionError for a folder that holds a sweep and is not resumed, or one of other
        options; NotFoundError for one without a sweep; DataLossError for a damaged state.
        """
        self.path = path
        self.state: tuple[dict[str, Array], dict[str, Any]] | None = None
        there = (path / OPTIONS).exists()
        if resume and not there:
            raise NotFoundError(f"resume: {path} holds no sweep to go on with; leave resume out to begin one")
        if there and not resume:
            raise FailedPreconditionError(
                f"output folder {path} holds a sweep already; add --resume (in a program resume=True) "
                "to go on with it, or choose another output"
            )
        make_folder(path)
        self._handle = lock_folder(path)
        try:
            if there:
                self._require_same(options)
            remove_unfinished(path)
            if (path / STATE).exists():
                self.state = load_arrays(path / STATE, remedy="begin the sweep anew in another folder")
            write_file(path / OPTIONS, (json.dumps(options, indent=1) + "\n").encode())
            self._cut_curves()
        except BaseException:
            self.close()
            raise

    def _require_same(self, options: Mapping[str, Any]) -> None:
        now, saved = json.loads(json.dumps(options)), read_options_file(self.path)
        pairs = ((group, name) for group in now for name in {**saved[group], **now[group]})
        for group, name in pairs:
            before, after = saved[group].get(name), now[group].get(name)
            if before != after:
                raise FailedPreconditionError(
                    f"{self.path} holds another sweep: {name} was {shortened(before)}, is "
                    f"{shortened(after)}; resume with the same options, or choose another output"
                )

    def _cut_curves(self) -> None:
        """Keeps the lines that the state counts."""
        lines = 0 if self.state is None else int(self.state[1]["lines"])
        path = self.path / CURVES
        kept = read_file(path, MOST_CURVES).splitlines(keepends=True)[:lines] if path.exists() else []
        if len(kept) < lines:
            raise DataLossError(f"{path} has {len(kept)} lines of {lines}; begin the sweep anew")
        write_file(path, b"".join(kept))
        self.lines = lines

    def forget(self) -> None:
        """Makes the folder of a sweep that has not begun free for another one."""
        (self.path / OPTIONS).unlink(missing_ok=True)

    def add_curves(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Appends a line for each member and epoch."""
        lines = [record_line(record) for record in records]
        append_to_file(self.path / CURVES, b"".join(lines))
        self.lines += len(lines)

    def save_state(self, arrays: Mapping[str, Array], metadata: Mapping[str, Any]) -> None:
        """Writes the state, with the curves' lines that belong to it."""
        save_arrays(self.path / STATE, arrays, {**metadata, "lines": self.lines})

    def save_results(self, members: Iterable[Member], names: Iterable[str]) -> None:
        """Writes `results.csv`. names: of the swept options."""
        text = io.StringIO(newline="")
        rows = [member.row() for member in members]
        figures = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
        columns = [*dict.fromkeys(["member", *names, "seed", "status", "epochs", *figures])]
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_file(self.path / RESULTS, text.getvalue().encode())

    def member_file(self, number: int) -> Path:
        """File of a member's weights."""
        return self.path / MEMBERS / f"member-{number:05d}.safetensors"

    def save_member(self, number: int, values: Mapping[str, Array], about: Mapping[str, Any]) -> None:
        """Writes a member's weights."""
        make_folder(self.path / MEMBERS)
        save_arrays(self.member_file(number), values, about)

    def member_values(self, number: int) -> dict[str, Array]:
        """The weights of a member that is kept."""
        return load_arrays(self.member_file(number))[0]

    def keep_only(self, numbers: set[int]) -> None:
        """Deletes the weights of all other members; what keeps them must be saved before."""
        wanted = {self.member_file(number).name for number in numbers}
        for file in (self.path / MEMBERS).glob("member-*.safetensors"):
            if file.name not in wanted:
                file.unlink()

    def _paused_file(self, member: Member) -> Path:
        return self.path / PAUSED_MEMBERS / f"member-{member.number:05d}-epoch-{member.epochs}.safetensors"

    def save_paused(self, member: Member, values: Mapping[str, Array]) -> None:
        """Writes all variables of a member that waits after an epoch."""
        make_folder(self.path / PAUSED_MEMBERS)
        save_arrays(self._paused_file(member), values, {})

    def paused_values(self, member: Member) -> dict[str, Array]:
        """All variables of a member that waits after an epoch."""
        return load_arrays(self._paused_file(member), remedy="begin the sweep anew in another folder")[0]

    def keep_only_paused(self, members: Iterable[Member]) -> None:
        """Deletes the variables of members that wait no more; the state must be saved before."""
        folder = self.path / PAUSED_MEMBERS
        wanted = {self._paused_file(member) for member in members}
        for file in folder.glob("member-*.safetensors"):
            if file not in wanted:
                file.unlink()
        if folder.exists() and not wanted:
            folder.rmdir()

    def save_best(self, member: Member, described: Mapping[str, Any], graph: bytes | None) -> Path:
        """Writes a member as a run's folder, from its saved weights; returns the path.

        described: with its inference graph, if `graph` has it.
        """
        path = self.path / BEST
        make_folder(path)
        save_arrays(path / MODEL, self.member_values(member.number), described)
        if graph is not None:
            write_file(path / GRAPH_FILE, graph)
        options = {**member.config.to_dict(), "output": str(path)}
        if described.get("dataset") == GIVEN:
            options["dataset"] = GIVEN_BY_PROGRAM
        write_file(path / CONFIG, config_text(options).encode())
        own = [record for record in self.curves() if record.pop("member") == member.number]
        for record in own:
            # A run's records have rounds; compare and curves.png read no others.
            record["round"] = member.rounds * record["epoch"] // member.epochs
        if own:
            own[-1] |= member.figures  # figures of the test examples are added
        write_file(path / METRICS, b"".join(map(record_line, own)))
        return path

    def curves(self) -> list[dict[str, Any]]:
        """All records of the curves."""
        lines = read_file(self.path / CURVES, MOST_CURVES).decode().splitlines()
        return [parse_json(line, MOST_VALUES) for line in lines]

    def close(self) -> None:
        """Unlocks; idempotent."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
