"""Public callables under odd arguments: taken where they mean something, else refused in one line.

The line names the callable and the parameter, or begins with the latter, as an option. Never Python's own
error, never another meaning: a bool as a whole number, a float as an axis, a string as a number.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import tensorbow as tb
from tests.arguments.odd_values import ODD
from tests.arguments.public_calls import SORT_OF, Call, names_of, parameters, plain, public_callables
from tests.arguments.takes_strings import with_strings
from tests.arguments.without_row import WITHOUT_ROW

TABLES = [
    importlib.import_module(f"tests.arguments.{file.stem}")
    for file in sorted(Path(__file__).parent.glob("calls_of_*.py"))
]
CALLS: Mapping[str, Call] = with_strings(
    {name: call for table in TABLES for name, call in table.CALLS.items()}
)
PUBLIC = public_callables()
SAMPLE = 3  # odd values for each parameter in the default suite


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a text is a good path: files are written


def test_every_public_callable_has_a_row() -> None:
    missing = set(PUBLIC) - set(CALLS) - WITHOUT_ROW
    assert not missing, f"add rows to a table of tests/arguments: {sorted(missing)}"
    assert not set(CALLS) - set(PUBLIC), "rows of what is not public"
    assert not WITHOUT_ROW - set(PUBLIC)
    assert not WITHOUT_ROW & set(CALLS)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_good_call_of_each_row_is_good_and_every_parameter_has_a_sort(name: str) -> None:
    call = CALLS[name]
    for parameter in parameters(PUBLIC[name]):
        call.accepted(parameter)
    with tb.Graph().as_default():
        _run(name, call, {})


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.sampled(6)
def test_a_few_odd_arguments(name: str) -> None:
    chosen = [
        (parameter, odd)
        for parameter in parameters(PUBLIC[name])
        for odd in sorted(ODD, key=lambda odd: zlib.crc32(f"{name} {parameter} {odd}".encode()))[:SAMPLE]
    ]
    _check(name, chosen)


def _tensors_of(name: str) -> list[str]:
    """Parameters of a function that are tensors."""
    sorts = {each: CALLS[name].sorts.get(each) or SORT_OF.get(each, "") for each in parameters(PUBLIC[name])}
    kinds = ("tensor", "real", "strings", "integers")
    return [] if CALLS[name].target else [p for p, s in sorts.items() if s.removesuffix(" or none") in kinds]


@pytest.mark.parametrize("name", [name for name in sorted(CALLS) if _tensors_of(name)])
@pytest.mark.sampled(6)
def test_a_tensor_of_unknown_rank_is_taken_or_refused_in_words(name: str) -> None:
    faults = []
    for parameter in _tensors_of(name):
        with tb.Graph().as_default(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = dict(CALLS[name].arguments())
            try:
                known = tb.convert_to_tensor(arguments[parameter])
            except (tb.TensorBowError, KeyError):  # a nest of them, or left out
                continue
            try:
                PUBLIC[name](**arguments | {parameter: tb.placeholder(known.dtype)})
            except tb.TensorBowError as error:
                if not any(word in str(error) for word in ("rank", "shape", "known", "symbolic", "?")):
                    faults.append(f"{parameter}: {error}")
    assert not faults


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CALLS))
def test_all_odd_arguments(name: str) -> None:
    _check(name, [(parameter, odd) for parameter in parameters(PUBLIC[name]) for odd in ODD])


def _check(name: str, cases: list[tuple[str, str]]) -> None:
    faults = [fault for parameter, odd in cases if (fault := _fault(name, parameter, odd))]
    assert not faults, "\n".join(faults)


def _fault(name: str, parameter: str, odd: str) -> str:
    """Fault in the outcome of a call with one odd argument; "" for none."""
    call, case = CALLS[name], f"{name}({parameter}=<{odd}>)"
    try:
        with tb.Graph().as_default(), warnings.catch_warnings():
            warnings.simplefilter("error")
            _run(name, call, {parameter: ODD[odd]()})
    except tb.TensorBowError as error:
        text = str(error)
        if "\n" in text:
            return f"{case}: an error of several lines: {text!r}"
        names = names_of(name, call, PUBLIC[name])
        if not (text.startswith(f"{parameter}: ") or any(plain(known) in plain(text) for known in names)):
            return f"{case}: the error does not name the callable: {text}"
        if odd not in call.accepted(parameter) and parameter not in text:
            return f"{case}: the error does not name the parameter: {text}"
    except Exception as error:
        return f"{case}: {type(error).__name__}: {str(error)[:150]}"
    else:
        if odd not in call.accepted(parameter):
            return f"{case}: taken"
    return ""


def _run(name: str, call: Call, odd: Mapping[str, object]) -> None:
    arguments = {**call.arguments(), **odd}
    target = PUBLIC[name] if call.target is None else call.target()
    with _entered(target(**arguments)):
        pass


@contextlib.contextmanager
def _entered(result: object) -> Iterator[None]:
    """Result of a call, entered and left: a scope checks its argument on entry, a session is closed."""
    if hasattr(result, "__enter__") and hasattr(result, "__exit__"):
        with result:
            yield
    else:
        yield
