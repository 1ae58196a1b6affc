"""Where a run's options come from: the run it goes on with, then --config, then the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from scheduler import TrainingConfig
from scheduler.run_folder import find_checkpoint
from tensorbow.errors import InvalidArgumentError

CONFIG_LIMIT = 1 << 20  # bytes of a configuration file
_OF_ONE_RUN = ("output", "resume")  # of the run that saved them, never of another


def resolve_options(given: Mapping[str, Any], config: Path | None) -> TrainingConfig:
    """The configuration of a run. given: what the command line says, without its defaults.

    Raises InvalidArgumentError, and what reading a checkpoint raises.
    """
    from_file = {} if config is None else read_config(config)
    options = {**from_file, **given}
    if isinstance(options.get("learning_rate_drops"), str):
        options["learning_rate_drops"] = parse_drops(options["learning_rate_drops"])
    place = {name: options[name] for name in ("model", "dataset", *_OF_ONE_RUN) if name in options}
    where = TrainingConfig.from_dict(place)
    output = where.output or _default_output(where)
    checkpoint, _ = find_checkpoint(output, where.resume)
    if checkpoint is None:
        return TrainingConfig.from_dict({**options, "output": output})
    saved = {name: v for name, v in checkpoint.metadata["config"].items() if name not in _OF_ONE_RUN}
    try:
        return TrainingConfig.from_dict({**saved, **options, "output": output})
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"with the options saved in {checkpoint.path}: {error}") from error


def read_config(path: Path) -> dict[str, Any]:
    """The options of a YAML file. Raises InvalidArgumentError."""
    try:
        with open(path, "rb") as file:
            text = file.read(CONFIG_LIMIT + 1)
        if len(text) > CONFIG_LIMIT:
            raise ValueError(f"it is larger than {CONFIG_LIMIT:,} bytes")
        values = yaml.safe_load(text.decode("utf-8"))
    except OSError as error:
        raise InvalidArgumentError(f"--config {path}: {error.strerror or error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InvalidArgumentError(f"--config {path} is no YAML: {reason}") from None
    if not isinstance(values, dict):
        raise InvalidArgumentError(
            f"--config {path}: expected a mapping of options, as 'batch_size: 16'; "
            f"got {type(values).__name__}"
        )
    options: dict[str, Any] = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise InvalidArgumentError(f"--config {path}: expected names of options, got {str(key)[:40]!r}")
        name = key.replace("-", "_")
        name = "replicas_per_device" if name == "replicas_per_gpu" else name
        if name in options:
            raise InvalidArgumentError(f"--config {path}: {name} stands there twice")
        if name not in _OF_ONE_RUN:
            options[name] = value
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


def _default_output(config: TrainingConfig) -> str:
    """Where the run is saved when nobody says: a fresh folder, or the last one to resume."""
    if config.resume not in (None, "auto"):
        path = Path(str(config.resume))
        return str(path if path.is_dir() else path.parent)
    base = Path("runs") / f"{config.model}-{config.dataset}"
    number, folder, previous = 1, base, base
    while folder.exists():
        number, previous = number + 1, folder
        folder = base.with_name(f"{base.name}-{number}")
    return str(previous if config.resume == "auto" else folder)
