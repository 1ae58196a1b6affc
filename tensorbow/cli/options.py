"""Options of the command line; a run's come from its checkpoint, --config and the command line."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from scheduler import TrainingConfig
from scheduler.options import Option, options_of, shortened
from scheduler.sweeps.search_space import OF_RUNS, SHARED
from scheduler.training.configuration.config_file import read_config_file
from scheduler.training.configuration.synonyms import nearest_option
from scheduler.training.folders.output_folders import default_output, find_checkpoint
from scheduler.training.folders.run_folder import CONFIG
from tensorbow.cli.messages import OptionValueError, say
from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    TensorBowError,
)
from tensorbow.files import NewFile
from tensorbow.models import MODEL_NAMES, MODELS, ResNet, find_model, get_model
from tensorbow.pictures import FORMATS, require_matplotlib

Command = TypeVar("Command", bound=Callable[..., Any])

MODELS_HELP = (
    f"MODEL: {MODEL_NAMES}; or your own, FILE.py:NAME or PACKAGE.MODULE:NAME, a class or function (inputs, "
    "labels, training) that returns (loss, outputs, metrics). Arguments of a class are options, as "
    "--model.width 64."
)
OF_MODEL = "--model."  # beginning of the names of a model's options
RUN_OPTIONS = options_of(TrainingConfig)
_ONE_RUN_NAMES = [name for name, option in RUN_OPTIONS.items() if option.of_one_run]
# Options that choose the folder of a run, in which its other options may be saved.
_LOCATING = ("model", "model_options", "dataset", "data", *_ONE_RUN_NAMES)
_TYPED_NAMES = {name: option.flag for name, option in RUN_OPTIONS.items()} | {
    "model": "MODEL"
}  # on the command line
_WORDS = "tensorbow.words"  # of a command with a model, in the context's meta
_OF_MODEL = ("model", "model_options")  # MODEL and --model.NAME
_ALIASES = {option.alias: name for name, option in RUN_OPTIONS.items() if option.alias}
# Names of options with an underscore, no English words; not in paths, longer names, quotes, NAME=VALUE.
_NAMES = re.compile(rf"(?<![\w/.'-])({'|'.join(name for name in RUN_OPTIONS if '_' in name)})(?![\w/=-])")
_FIRST = re.compile(rf"^({'|'.join(RUN_OPTIONS)})(?=: )")
# In `TrainingConfig.differences`:
_DIFFERENCE = re.compile(rf"(?<=[:;] )({'|'.join(RUN_OPTIONS)}|model\.\w+)(?= was )")
_YES_OR_NO = {"yes": True, "no": False, "on": True, "off": False}  # booleans of YAML 1.1


class Decimal(click.types.FloatParamType):
    """A number. The error for a list of them points to sweeps."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number. Raises OptionValueError for a list."""
        if isinstance(value, str) and "," in value and param is not None and param.name is not None:
            remedy = f"; tensorbow sweep MODEL --grid {param.name}={value} trains with each"
            is_swept = param.name not in (*SHARED, *OF_RUNS)
            raise OptionValueError(
                f"{param.opts[0]}: expected one number, got {shortened(value)}{remedy if is_swept else ''}"
            )
        return super().convert(value, param, ctx)


_CLICK_TYPES = {"bool": bool, "int": int, "float": Decimal()}  # all other options are parsed from text later


def add_options(cls: Any, *names: str, **more_help: str) -> Callable[[Command], Command]:
    """Decorator that adds the options of a data class to a command.

    names: only these, with the first sentence of their help. more_help: further sentences, by option.
    """
    options = {name: option for name, option in options_of(cls).items() if name not in _OF_MODEL}

    def add(command: Command) -> Command:
        for name in reversed([name for name in names if name in options] or [*options]):
            command = _click_option(options[name], bool(names), more_help.get(name, ""))(command)
        return command

    return add


class ModelCommand(click.Command):
    """Command with a MODEL, whose own options are `--model.NAME VALUE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Takes the model's options out of the arguments. Raises OptionValueError for one without a value."""
        rest, found, left = [], dict[str, str](), iter(args)
        for arg in left:
            name, equals, value = arg.partition("=")
            if not name.startswith(OF_MODEL):
                rest.append(arg)
                continue
            if not equals and (value := next(left, "--")).startswith("--"):
                raise OptionValueError(f"{name}: expected a value, as {name} 64 or {name} true")
            found[name.removeprefix(OF_MODEL).replace("-", "_")] = value
        ctx.meta[_WORDS] = tuple(rest)  # for hints of errors; parsing empties the list
        parsed = super().parse_args(ctx, rest)
        if found:
            ctx.params["model_options"] = found
            ctx.set_parameter_source("model_options", ParameterSource.COMMANDLINE)
        return parsed


def _click_option(option: Option, in_short: bool, more_help: str) -> Callable[[Command], Command]:
    help = f"{option.help.partition('. ')[0].rstrip('.')}." if in_short else option.help
    shown: str | bool = option.shown or True
    if option.of_model:
        shown = "the model's" if in_short else _by_model(option.name)
    elif option.type == "bool":
        shown = "off"
    kind: Any = _CLICK_TYPES.get(option.type.removesuffix(" | None"), str)
    if option.choices:
        kind = Choice(list(option.choices))
    elif (option.metavar or "").endswith(("DIR", "FILE", "PATH")):
        kind = PathOption()
    default = option.default
    return click.option(
        *dict.fromkeys((option.flag, f"--{option.name.replace('_', '-')}")),
        option.name,
        default=",".join(default) if isinstance(default, tuple) else default,
        show_default=shown,
        type=kind,
        is_flag=option.type == "bool",
        metavar=option.metavar,
        help=f"{help} {more_help}".strip(),
    )


def _by_model(name: str) -> str:
    """Text for a default that depends on the model: the default model's, and models that differ."""
    shown = {model: _shown(getattr(get_model(model).defaults, name)) for model in MODELS}
    common = shown[RUN_OPTIONS["model"].default]
    others: dict[str, list[str]] = {}
    for model, value in shown.items():
        if value != common:
            others.setdefault(value, []).append(model)
    differing = [f"{_family(models)}: {value}" for value, models in others.items()]
    return "; ".join([common, *differing])


def _shown(value: Any) -> str:
    """Formats a value as it is written on the command line."""
    if value is None:
        return "as they are"  # of pictures, the only option whose default may be None
    if isinstance(value, tuple) and value and isinstance(value[0], int):
        return "x".join(map(str, value))
    if isinstance(value, tuple):
        return ",".join(f"{epoch}:{factor:g}" for epoch, factor in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _family(names: list[str]) -> str:
    """Joins names of models; all resnets of 6n+2 layers are one."""
    family = [name for name in MODELS if isinstance(get_model(name), ResNet)]
    if set(family) <= set(names):
        names = ["resnets of 6n+2 layers", *(name for name in names if name not in family)]
    return ", ".join(names)


def config_option(name: str = "config_file", more_help: str = "") -> Callable[[Command], Command]:
    """The option --config, as argument `name` of a command."""
    return click.option(
        "--config",
        name,
        type=PathOption(path_type=Path),
        metavar="FILE",
        show_default="none",
        help="YAML file of options, such as a run's config.yaml; options on the command line override it."
        f" {more_help}".rstrip(),
    )


def json_option(help: str) -> Callable[[Command], Command]:
    """The flag --json, as argument `as_json` of a command."""
    return click.option("--json", "as_json", is_flag=True, show_default="off", help=help)


def picture_option(help: str) -> Callable[[Command], Command]:
    """The option --picture; for `require_picture`."""
    return click.option(
        "--picture", type=PathOption(path_type=Path), metavar="FILE", show_default="none", help=help
    )


def given_options(context: click.Context, names: Collection[str] = RUN_OPTIONS) -> dict[str, Any]:
    """Options that are given on the command line, without defaults."""
    return {
        name: value
        for name, value in context.params.items()
        if name in names
        and value is not None
        and context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }


def resolve_options(given: Mapping[str, Any], config: Path | None) -> TrainingConfig:
    """Configuration of a run, from its checkpoint, a file and the command line; later ones win.

    given: options of the command line, without defaults. Raises OptionValueError, InvalidArgumentError for a
    file that cannot be read, and what reading a checkpoint raises.
    """
    from_file = {} if config is None else read_config(config)
    options = _joined(given, from_file, config)
    located = {name: options[name] for name in _LOCATING if name in options}
    with naming_origin(given, from_file, config):
        where = TrainingConfig.from_dict(located)
    output = where.output or _default_output(where)
    checkpoint, _ = find_checkpoint(output, where.resume)
    if checkpoint is None:
        if "model" not in options:
            raise OptionValueError(f"MODEL is missing: {output} holds no checkpoint that would name it")
        with naming_origin(given, from_file, config):
            return TrainingConfig.from_dict({**options, "output": output})
    saved = {name: v for name, v in checkpoint.metadata["config"].items() if name not in _ONE_RUN_NAMES}
    with naming_origin(given, from_file, config, f"with the options saved in {checkpoint.path}: "):
        return TrainingConfig.from_dict({**saved, **options, "output": output})


def missing_model() -> str:
    """Error of a command without its MODEL; it names the configuration in the current folder."""
    here = f", as --config {CONFIG}, which is here" if Path(CONFIG).is_file() else " with 'model:' in it"
    return f"MODEL is missing: give it, or a --config file{here}"


def _joined(given: Mapping[str, Any], from_file: Mapping[str, Any], config: Path | None) -> dict[str, Any]:
    """Merges the options of the file and of the command line, which wins.

    Raises OptionValueError if there is no model and no checkpoint that could name one.
    """
    options = {**from_file, **given}
    for name, other in (("data", "dataset"), ("dataset", "data")):
        if name in given and other not in given:
            options.pop(other, None)
    kept = from_file.get("model_options") if options.get("model") == from_file.get("model") else None
    if isinstance(kept, dict):
        options["model_options"] = {**kept, **given.get("model_options", {})}
    elif "model" in given and "model_options" not in given:
        options.pop("model_options", None)
    resumes = options.get("resume") is not None
    if "model" not in options and not (resumes and (options["resume"] != "auto" or "output" in options)):
        raise OptionValueError(missing_model())
    if "model" in given and from_file.get("model", given["model"]) != given["model"]:
        say(f"MODEL {given['model']} is trained, not the {from_file['model']} of --config {config}")
    return options


@contextlib.contextmanager
def naming_origin(
    given: Mapping[str, Any],
    from_file: Mapping[str, Any] = MappingProxyType({}),
    config: Path | None = None,
    otherwise: str = "",
) -> Iterator[None]:
    """Context that adds the origin to errors of options: the option as typed, the file, or `otherwise`."""
    try:
        yield
    except InvalidArgumentError as error:
        name, _, reason = str(error).partition(":")
        if name.startswith("model.") and "model_options" in given:
            raise OptionValueError(f"--{error}") from error
        if name in given:
            raise OptionValueError(f"{_TYPED_NAMES[name]}:{as_typed(reason)}") from error
        if name in from_file or name.startswith("unknown option"):
            raise OptionValueError(f"{f'--config {config}: ' if from_file else otherwise}{error}") from error
        raise OptionValueError(f"{otherwise}{as_typed(str(error))}") from error


def checked(given: Mapping[str, Any], config: Path | None = None) -> TrainingConfig:
    """Configuration from a file and the command line, which wins; checkpoints are not read.

    Raises OptionValueError, and InvalidArgumentError for a file that cannot be read.
    """
    from_file = {} if config is None else read_config(config)
    options = _joined(given, from_file, config)
    with naming_origin(given, from_file, config):
        return TrainingConfig.from_dict(options)


def as_typed(text: str) -> str:
    """Replaces names of options in a message by those of the command line: --batch-size for batch_size."""
    text = _FIRST.sub(lambda match: _TYPED_NAMES[match.group()], text)
    text = _DIFFERENCE.sub(lambda match: _TYPED_NAMES.get(match.group(), f"--{match.group()}"), text)
    return _NAMES.sub(lambda match: _TYPED_NAMES[match.group()], text)


@contextlib.contextmanager
def names_as_typed() -> Iterator[None]:
    """Context that applies `as_typed` to the messages of errors."""
    try:
        yield
    except InvalidArgumentError as error:
        text = as_typed(str(error))
        if text == str(error):
            raise
        raise type(error)(text) from error


def read_config(path: Path) -> dict[str, Any]:
    """Reads the options of a YAML file, without those of one run. Raises InvalidArgumentError."""
    try:
        values = read_config_file(path)
    except (NotFoundError, FailedPreconditionError, ResourceExhaustedError) as error:
        raise InvalidArgumentError(f"--config: {error}") from None
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"--config {path}: {error}") from None
    options: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        name = _ALIASES.get(name, name)
        if name in options:
            raise InvalidArgumentError(f"--config {path}: {name} is given twice")
        if name not in _ONE_RUN_NAMES:
            is_word = name in RUN_OPTIONS and RUN_OPTIONS[name].type == "bool" and isinstance(value, str)
            options[name] = _YES_OR_NO.get(value, value) if is_word else value
    return options


def no_such_option(error: click.NoSuchOption) -> str:
    """Message of an unknown option, with the nearest one, also by the names of other libraries."""
    command = error.ctx.command if error.ctx is not None else click.Command("tensorbow")
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    flags = {_bare(flag): flag for option in options for flag in option.opts}
    flags |= {str(option.name): option.opts[0] for option in options}
    own = _bare(error.option_name)
    near = nearest_option(error.option_name, flags)
    if error.ctx is not None and (near is None or near != own) and own in _options_of_model(error.ctx):
        near, flags = own, {own: f"{OF_MODEL}{own}"}
    hint = "." if near is None else f"; did you mean {flags[near]}?"
    path = error.ctx.command_path if error.ctx is not None else "tensorbow"
    return f"No such option '{error.option_name}'{hint} See '{path} --help'."


def _options_of_model(ctx: click.Context) -> Collection[str]:
    """Names of the options of the first word that is a model's name; none if there is no such word."""
    for word in ctx.meta.get(_WORDS, ()):
        if not word.startswith("-"):
            with contextlib.suppress(TensorBowError):
                return find_model(word).options
    return ()


def _bare(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


class Choice(click.Choice):  # type: ignore[type-arg]  # click 8.1 has none
    """Shows the choices in the help; the value is checked later, with all other options."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the value unchecked."""
        return value


class PathOption(click.Path):
    """A path that is not empty or too long; the file is checked where it is used."""

    def __init__(self, path_type: type[Any] | None = None):
        super().__init__(readable=False, path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the path. Raises OptionValueError."""
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
    """Raises OptionValueError for a file that cannot be written, before its content is computed.

    Its folder must exist; it is not created, since the path may be mistyped.
    """
    try:
        NewFile(path).discard()
    except TensorBowError as error:
        raise OptionValueError(f"{option}: {error}") from error


def require_picture(path: Path) -> None:
    """Raises OptionValueError for a path of --picture that cannot be written or whose ending is not a format.

    Raises FailedPreconditionError without matplotlib.
    """
    if path.suffix.lower().removeprefix(".") not in FORMATS:
        kinds = ", ".join(f".{name}" for name in FORMATS)
        raise OptionValueError(f"--picture: expected a file that ends in one of {kinds}, got {str(path)!r}")
    require_matplotlib("--picture")
    require_writable("--picture", path)


def _default_output(config: TrainingConfig) -> str:
    """Default output folder: a numbered one below runs/, or the folder of the checkpoint to resume."""
    if config.resume in (None, "auto"):
        return str(default_output(config))
    path = Path(str(config.resume))
    return str(path if path.is_dir() else path.parent)
