"""Checks, files, the command line and its help all follow from the field that declares an option."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import tensorbow as tb
from scheduler import Synchronisation, TrainingConfig
from scheduler.options import documents_options, option, options_of, read_options, same_option
from scheduler.sweeps.search_space import read_range, read_values
from scheduler.training.configuration.synonyms import nearest_option
from tensorbow.cli.app import COMMANDS
from tensorbow.cli.grouped_help import OTHER_SUBJECT, SUBJECTS
from tensorbow.cli.options import RUN_OPTIONS, add_options, checked, given_options, read_config
from tensorbow.cli.sweep import EXAMPLES as SWEEP_EXAMPLES
from tensorbow.cli.sweep import MEMBER_OPTIONS, sweep
from tensorbow.cli.train import EXAMPLES, train
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import FLAG, whole

Call = Callable[..., Any]
OPTIONS = options_of(TrainingConfig)
VALUES: dict[str, Any] = {"int": 3, "int | None": 3, "float": 0.25, "float | None": 0.25, "bool": True}
OTHERS: dict[str, Any] = {  # values that are not their type's
    "replicas_per_device": [3, 1],
    "learning_rate_drops": [[1, 0.5], [2, 0.25]],
    "trace_rounds": [1, 2],
    "optimizer_options": {"beta1": 0.5},
    "metrics": ["top5", "f1"],
    "early_stopping": ["test_loss", 3, 0.0],
    "model": "logreg",
    "model_options": {"hidden": [3]},
    "image_size": [8, 9],
    "class_weights": [1.0, 0.5],
    "augmentation": "flip",
    "ignore_columns": ["id", "name"],
    "weights_skip": ["fc.*", "head/*"],
    "weights_names": {"conv1": "features.0"},
    "weights_flattened": {"fc/kernel": [7, 5, 64]},
    "devices": ["cpu:0", "cpu:1"],
    **{name: [*declared.choices][-1] for name, declared in OPTIONS.items() if declared.choices},
}
NEEDS: dict[str, dict[str, Any]] = {
    "backup": {"sync": "ssgd", "replicas_per_device": 4},
    **{name: {"sync": "diloco"} for name in ("outer_learning_rate", "outer_momentum", "exchange_dtype")},
    "model_options": {"model": "mlp"},
    "trace_rounds": {"trace": "t.json"},
    "optimizer_options": {"optimizer": "adam"},
    "replicas_per_device": {"devices": ["cpu:0", "cpu:1"]},
}


@documents_options
@dataclass(frozen=True)
class Oven:
    """Options of an oven."""

    degrees: int = option(200, "Heat of the oven. More of it bakes sooner.", whole(1, 300))
    minutes: int | None = option(None, "Time.", whole(1), shown="until done", alias="how_long")
    mode: str = option("air", "Way of heating.", choices=("air", "grill"))
    door_open: bool = option(False, "Bakes nothing.", FLAG)

    def __post_init__(self) -> None:
        read_options(self)


@dataclass(frozen=True)
class Kitchen:
    degrees: int = same_option(Oven, "degrees", "Shared.", fixed=True)


@click.command()
@add_options(Oven)
@click.pass_context
def bake(context: click.Context, /, **_: Any) -> None:
    given = given_options(context, options_of(Oven))
    print(json.dumps([given, vars(Oven(**given))]))


@click.command()
@add_options(Oven, "mode", "degrees", degrees="Try 180.")
def warm(**_: Any) -> None:
    pass


def told(command: click.Command) -> str:
    return " ".join(CliRunner().invoke(command, ["--help"], terminal_width=100).output.split())


def test_a_new_field_is_an_option_with_help_check_and_docstring() -> None:
    for part in (
        "--degrees INTEGER Heat of the oven. More of it bakes sooner. [default: 200]",
        "--how-long, --minutes INTEGER Time. [default: (until done)]",
        "--mode [air|grill] Way of heating. [default: air]",
        "--door-open Bakes nothing. [default: (off)]",
    ):
        assert part in told(bake)
    in_short = (
        "--mode [air|grill] Way of heating. [default: air] --degrees INTEGER Heat of the oven. Try 180."
    )
    assert in_short in told(warm)
    assert "minutes: Time. Default: until done." in str(Oven.__doc__)
    done = CliRunner().invoke(bake, ["--how-long", "5", "--door-open"])
    given = {"minutes": 5, "door_open": True}
    assert json.loads(done.output) == [given, {"degrees": 200, "mode": "air", **given}]
    for wrong, words in (
        ({"degrees": 301}, "degrees: expected a whole number from 1 to 300, got 301"),
        ({"degrees": None}, "degrees: expected a whole number from 1 to 300, got None"),
        ({"mode": "steam"}, "mode: expected one of air, grill, got 'steam'"),
        ({"door_open": 1}, "door_open: expected True or False, got 1"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            Oven(**wrong)


def test_an_option_that_two_classes_have_is_declared_by_one() -> None:
    (shared,) = options_of(Kitchen).values()
    assert (shared.default, shared.kind) == (200, options_of(Oven)["degrees"].kind)
    assert (shared.fixed, shared.help.endswith("sooner. Shared.")) == (True, True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_of_a_run(call: Call, tmp_path: Path, name: str) -> None:
    """Every option is in help and docstring; programs, files and the command line accept and refuse alike."""
    declared = OPTIONS[name]
    if name not in ("model", "model_options"):  # an argument, and --model.NAME
        entry = "".join(re.split(rf"\n  {declared.flag}(?=[ ,])", call("train", "--help").out)[1].split())
        text, _, default_shown = entry.partition("[default:")
        default = str(declared.default).replace("False", "off").strip("(',)")
        assert "".join(declared.help.split()) in text
        default = "".join((declared.shown or default).split())
        assert declared.of_model or default_shown.lstrip("(").startswith(default)
    assert f"\n    {name}: " in str(TrainingConfig.__doc__)
    value = OTHERS.get(name, VALUES.get(declared.type, "text"))
    needs = NEEDS.get(name, {})
    config = TrainingConfig(**needs, **{name: value})
    got = config.to_dict()[name]
    assert got == value != TrainingConfig(**needs).to_dict()[name]
    if not declared.of_one_run:
        key = (declared.alias or name).replace("_", "-")
        (tmp_path / "c.yaml").write_text(json.dumps({"model": "lenet", **needs, key: value}))
        assert checked(read_config(tmp_path / "c.yaml")) == config
    for wrong in (object(), [[]], -1.5):
        with pytest.raises(InvalidArgumentError, match=f"^{name}: expected ") as caught:
            TrainingConfig(**{name: wrong})
        if not declared.of_one_run and wrong == -1.5:
            (tmp_path / "c.yaml").write_text(json.dumps({"model": "lenet", name: wrong}))
            assert call("train", "--config", "c.yaml").line == f"tensorbow: --config c.yaml: {caught.value}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_every_option_but_help_is_under_a_subject(command: click.Command, call: Call) -> None:
    told = call(str(command.name), "--help").out
    left = told.partition(f"\n{OTHER_SUBJECT}:")[2].partition("MODEL:")[0]
    assert left.split() == ["-h,", "--help", "Show", "this", "message", "and", "exit."]
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    assert all(f"  {each.opts[0]}" in told for each in options)


@pytest.mark.parametrize(
    ("command", "examples", "of_config"),
    [
        (train, EXAMPLES, [*RUN_OPTIONS]),
        (sweep, SWEEP_EXAMPLES, [*MEMBER_OPTIONS, "model", "model_options"]),
    ],
)
def test_the_help_has_every_option_under_its_subject_and_sound_examples(
    call: Call,
    tmp_path: Path,
    command: click.Command,
    examples: tuple[tuple[str, str], ...],
    of_config: list[str],
) -> None:
    name = str(command.name)
    code = "class MyModel:\n    def __init__(self, width: int = 8):\n        self.width = width\n"
    (tmp_path / "my_model.py").write_text(code)
    subjects = [name for names in SUBJECTS.values() for name in names]
    assert len(set(subjects)) == len(subjects)
    own = {str(parameter.name) for parameter in command.params}
    assert own - {*subjects} == {"model"}
    told = call(name, "--help").out
    assert [line[:-1] for line in told.splitlines() if re.fullmatch(r"[A-Z][a-z ]+:", line)] == [
        "Examples",
        *(subject for subject, names in SUBJECTS.items() if own & {*names}),
        OTHER_SUBJECT,
    ]
    left = told.partition(f"{OTHER_SUBJECT}:")[2].partition("MODEL:")[0]
    assert left.split()[:2] == ["-h,", "--help"]
    assert left.count("--") == 1
    for words, _ in examples:
        context = command.make_context(name, words.split()[1:])
        assert words.split()[0] == name
        given = {"model": "lenet", **given_options(context, of_config)}
        axes = [read_values(text) for text in context.params.get("grid", ())]
        axes += [
            (swept, [axis.low, axis.high])
            for swept, axis in map(read_range, context.params.get("ranges", ()))
        ]
        for choices in product(*([(swept, value) for value in values] for swept, values in axes)):
            chosen = {k: v for k, v in choices if not k.startswith("model.")}
            of_model = {k.removeprefix("model."): v for k, v in choices if k not in chosen}
            assert TrainingConfig(**{**given, **chosen, **({"model_options": of_model} if of_model else {})})


def test_every_synonym_is_of_an_option() -> None:
    for synonym in ("lr", "--max-epochs", "wd", "monitor", "patience", "warmup_steps"):
        assert nearest_option(synonym, OPTIONS) in OPTIONS, synonym
    assert nearest_option("smoothing", ["seed"]) is None


def test_a_replicator_s_parameters_have_the_defaults_of_the_options() -> None:
    declared = options_of(Synchronisation)
    given = inspect.signature(tb.MultiGpuReplicator).parameters
    shared = declared.keys() & given.keys()
    assert declared.keys() - shared == {"priority"}
    assert given["sync"].default is None  # chosen by the devices
    assert all(given[name].default == declared[name].default for name in shared - {"sync"})
