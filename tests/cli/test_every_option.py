"""Every option and argument of every command, with invalid values: one line of error, and no work."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

from tensorbow.cli.app import COMMANDS
from tensorbow.cli.messages import LONGEST_LINE

Call = Callable[..., Any]
LONG_TEXT = "x" * (1 << 20)
OF_INTEGERS = ("-1", str(10**30), "9" * 5_000, "1.5", "1e3", "nan", "", "x", LONG_TEXT)
OF_NUMBERS = ("nan", "inf", "-inf", "-1", "1e39", "1e300", "1e999", "", "x", LONG_TEXT)
OF_TEXTS = ("", LONG_TEXT)
OF_CHOICES = ("", "x", LONG_TEXT, "\udcff\x1b[31m\n")


def ill_values(parameter: click.Parameter) -> tuple[str, ...]:
    if isinstance(parameter.type, click.Choice):
        return OF_CHOICES
    if isinstance(parameter.type, click.types.IntParamType):
        return OF_INTEGERS
    if isinstance(parameter.type, click.types.FloatParamType):
        return OF_NUMBERS
    if parameter.name in ("replicas_per_device", "trace_rounds", "learning_rate_drops"):
        empty_is_none = parameter.name == "learning_rate_drops"
        return (*(v for v in OF_INTEGERS if v or not empty_is_none), "1:nan", "-1:5", "1:1e300")
    return OF_TEXTS


def cases() -> Iterator[Any]:
    """Options and arguments, without those of which any value is sound as long as no run is read."""
    for command in COMMANDS:
        for parameter in command.params:
            any_value = {
                **{"compare": ("metric", "target"), "launch": ("arguments",)},
                **dict.fromkeys(("train", "sweep"), ("weights_skip",)),
            }
            if parameter.name in any_value.get(str(command.name), ()):
                continue
            if not (isinstance(parameter, click.Option) and (parameter.is_flag or parameter.is_eager)):
                yield pytest.param(command, parameter, id=f"{command.name} {parameter.name}")


def typed(command: click.Command, parameter: click.Parameter, value: str) -> list[str]:
    """A command line that is sound but for this value."""
    words = [str(command.name)]
    if isinstance(parameter, click.Option):
        words += [f"{parameter.opts[0]}={value}"]
    words.append("--")
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    return words + [value if argument is parameter else "logreg" for argument in arguments]


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is taken shows at once, whatever it would lead to."""

    def starts(*_: object, **__: object) -> None:
        raise AssertionError("the value is taken")

    monkeypatch.setattr("tensorbow.cli.train.Trainer", starts)
    monkeypatch.setattr("tensorbow.cli.launch.JobLaunch", starts)
    monkeypatch.setattr("tensorbow.cli.tune.ThroughputTuning", starts)
    monkeypatch.setattr("scheduler.sweeps.sweep.get_device", starts)
    monkeypatch.setattr("tensorbow.cli.explain.get_device", starts)
    monkeypatch.setattr("tensorbow.cli.inference.data_of_run", starts)


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(("command", "parameter"), list(cases()))
@pytest.mark.sampled(2)
def test_ill_values_are_refused_in_one_line(
    call: Call, command: click.Command, parameter: click.Parameter
) -> None:
    for value in ill_values(parameter):
        tracemalloc.start()
        ended = call(*typed(command, parameter, value))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        shown = repr(value)[:60]
        assert "the value is taken" not in ended.err, shown
        assert ended.status == 2 or (ended.status == 1 and value == LONG_TEXT), (shown, ended.line)
        name = parameter.human_readable_name if isinstance(parameter, click.Argument) else parameter.opts[0]
        assert name.strip("[]") in ended.line, shown
        assert len(ended.line) < LONGEST_LINE + 100, shown
        assert peak < 64 << 20, shown
