"""Where a run's options come from: the run it goes on with, then --config, then the command line."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from scheduler import TrainingConfig
from scheduler.training.config_file import read_config_file
from scheduler.training.run_places import default_output, find_checkpoint
from tensorbow.cli.messages import OptionValueError, say
from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    TensorBowError,
)
from tensorbow.files import NewFile
from tensorbow.models import MODEL_NAMES

MODELS_HELP = f"MODEL: {MODEL_NAMES}."
_OF_ONE_RUN = ("output", "resume", "trace", "trace_rounds")  # of the run that saved them, never of another
_FIELDS = {field.name: str(field.type) for field in fields(TrainingConfig)}
_TYPED = {name: f"--{name.replace('_', '-')}" for name in _FIELDS}
_TYPED.update(model="MODEL", replicas_per_device="--replicas-per-gpu")
# Names of options that are no words of English too, but not within paths and longer names.
_NAMES = re.compile(rf"(?<![\w/.-])({'|'.join(name for name in _FIELDS if '_' in name)})(?![\w/-])")
_FIRST = re.compile(rf"^({'|'.join(_FIELDS)})(?=: )")
_DIFFERENCE = re.compile(rf"(?<=[:;] )({'|'.join(_FIELDS)})(?= was )")  # of a checkpoint's run and this one
_YES_OR_NO = {"yes": True, "no": False, "on": True, "off": False}  # as YAML 1.1 has them


def resolve_options(given: Mapping[str, Any], config: Path | None) -> TrainingConfig:
    """The configuration of a run. given: what the command line says, without its defaults.

    Raises OptionValueError, InvalidArgumentError for a file that cannot be read, and what reading a
    checkpoint raises.
    """
    from_file = {} if config is None else read_config(config)
    options = _joined(given, from_file, config)
    place = {name: options[name] for name in ("model", "dataset", *_OF_ONE_RUN) if name in options}
    with _naming(given, from_file, config):
        where = TrainingConfig.from_dict(place)
    output = where.output or _default_output(where)
    checkpoint, _ = find_checkpoint(output, where.resume)
    if checkpoint is None:
        if "model" not in options:
            raise OptionValueError(f"MODEL is missing: {output} holds no checkpoint that would name it")
        with _naming(given, from_file, config):
            return TrainingConfig.from_dict({**options, "output": output})
    saved = {name: v for name, v in checkpoint.metadata["config"].items() if name not in _OF_ONE_RUN}
    with _naming(given, from_file, config, f"with the options saved in {checkpoint.path}: "):
        return TrainingConfig.from_dict({**saved, **options, "output": output})


def _joined(given: Mapping[str, Any], from_file: Mapping[str, Any], config: Path | None) -> dict[str, Any]:
    """The options of the file and of the command line, which wins."""
    options = {**from_file, **given}
    _require_model(given, from_file, options, config)
    if isinstance(options.get("learning_rate_drops"), str):
        with _naming(given, from_file, config):
            options["learning_rate_drops"] = parse_drops(options["learning_rate_drops"])
    return options


def _require_model(
    given: Mapping[str, Any], from_file: Mapping[str, Any], options: Mapping[str, Any], config: Path | None
) -> None:
    """The model is given, in the file, or in a checkpoint that is named; the command line wins."""
    resumes = options.get("resume") is not None
    if "model" not in options and not (resumes and (options["resume"] != "auto" or "output" in options)):
        raise OptionValueError("MODEL is missing: give it, or a --config file with 'model:' in it")
    if "model" in given and from_file.get("model", given["model"]) != given["model"]:
        say(f"MODEL {given['model']} is trained, not the {from_file['model']} of --config {config}")


@contextlib.contextmanager
def _naming(
    given: Mapping[str, Any], from_file: Mapping[str, Any], config: Path | None, otherwise: str = ""
) -> Iterator[None]:
    """Has a refused value say where it is from: the option as typed, the file, or `otherwise`."""
    try:
        yield
    except InvalidArgumentError as error:
        name, _, reason = str(error).partition(":")
        if name in given:
            raise OptionValueError(f"{_TYPED[name]}:{as_typed(reason)}") from error
        if name in from_file or name.startswith("unknown option"):
            raise OptionValueError(f"{f'--config {config}: ' if from_file else otherwise}{error}") from error
        raise OptionValueError(f"{otherwise}{as_typed(str(error))}") from error


def checked(given: Mapping[str, Any], config: Path | None = None) -> TrainingConfig:
    """The configuration of these options of a command line, which win over those of a file.

    Raises OptionValueError, and InvalidArgumentError for a file that cannot be read.
    """
    from_file = {} if config is None else read_config(config)
    options = _joined(given, from_file, config)
    with _naming(given, from_file, config):
        return TrainingConfig.from_dict(options)


def as_typed(text: str) -> str:
    """A message with the names of options as the command line has them: --batch-size for batch_size."""
    text = _FIRST.sub(lambda match: _TYPED[match.group()], text)
    text = _DIFFERENCE.sub(lambda match: _TYPED[match.group()], text)
    return _NAMES.sub(lambda match: _TYPED[match.group()], text)


@contextlib.contextmanager
def names_as_typed() -> Iterator[None]:
    """Errors of the block name options as the command line has them."""
    try:
        yield
    except InvalidArgumentError as error:
        text = as_typed(str(error))
        if text == str(error):
            raise
        raise type(error)(text) from error


def read_config(path: Path) -> dict[str, Any]:
    """The options of a YAML file. Raises InvalidArgumentError."""
    try:
        values = read_config_file(path)
    except (NotFoundError, FailedPreconditionError, ResourceExhaustedError) as error:
        raise InvalidArgumentError(f"--config: {error}") from None
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"--config {path}: {error}") from None
    options: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        name = "replicas_per_device" if name == "replicas_per_gpu" else name
        if name in options:
            raise InvalidArgumentError(f"--config {path}: {name} stands there twice")
        if name not in _OF_ONE_RUN:
            is_word = _FIELDS.get(name) == "bool" and isinstance(value, str)
            options[name] = _YES_OR_NO.get(value, value) if is_word else value
    return options


def parse_drops(text: str) -> list[tuple[int, float]]:
    """(epoch, factor) pairs of `10:0.1,15:0.01`. Raises InvalidArgumentError."""
    drops = []
    for item in filter(None, text.split(",")):
        epoch, colon, factor = item.partition(":")
        try:
            drops.append((int(epoch), float(factor)))
        except ValueError:
            colon = ""
        if not colon:
            raise InvalidArgumentError(f"learning_rate_drops: expected EPOCH:FACTOR, as 10:0.1, got {item!r}")
    return drops


class PathOption(click.Path):
    """A path that the system can have; what is there is checked where it is used."""

    def __init__(self, path_type: type[Any] | None = None):
        super().__init__(readable=False, path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Raises OptionValueError."""
        assert param is not None
        name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
        if value == "":
            raise OptionValueError(f"{name}: expected a path, got an empty text")
        try:
            os.stat(value)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise OptionValueError(f"{name}: {error.strerror}: {value}; choose a shorter path") from None
        return super().convert(value, param, ctx)


def require_writable(option: str, path: Path) -> None:
    """Raises OptionValueError for a file that cannot be written, before anything is computed for it.

    Its folder must be there: a mistyped path makes none.
    """
    try:
        NewFile(path).discard()
    except TensorBowError as error:
        raise OptionValueError(f"{option}: {error}") from error


def _default_output(config: TrainingConfig) -> str:
    """Where the run is saved when nobody says."""
    if config.resume in (None, "auto"):
        return str(default_output(config))
    path = Path(str(config.resume))
    return str(path if path.is_dir() else path.parent)
