"""Options in YAML: they mean what they look like, or are refused with their line, within bounds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import TrainingConfig
from scheduler.training.configuration.config_file import DEPTH, LIMIT, config_text, read_config_file
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError


def read(text: str, tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "c.yaml"
    path.write_text(text, "utf-8")
    return read_config_file(path)


MEANT = {
    "seed: 5": 5,
    "seed: -1_000_000": -1_000_000,
    "learning_rate: 1e-2": 0.01,
    "learning_rate: 1.5E3": 1500.0,
    "learning_rate: .5": 0.5,
    "learning_rate: 1.": 1.0,
    "decay_all: true": True,
    "decay_all: False": False,
    "trace: ~": None,
    "trace:": None,
    "output: no": "no",
    "output: 'no'": "no",
    "output: '0x10'": "0x10",
    'output: "1:30"': "1:30",
    "output: 2001-12-14": "2001-12-14",
    "trace_rounds: 10:50": "10:50",
    "learning_rate_drops: 10:0.1": "10:0.1",
    "learning_rate_drops: [[1, 0.5], [2, 1e-1]]": [[1, 0.5], [2, 0.1]],
    "learning_rate_drops:\n- - 1\n  - 0.5\n": [[1, 0.5]],
    "replicas_per_device: 3,1": "3,1",
    "devices: [cpu:0, cpu:1]": ["cpu:0", "cpu:1"],
    "output: a<<b": "a<<b",
    "output: =": "=",
    "output: e5": "e5",
    "output: |\n  two\n  lines\n": "two\nlines\n",
    "output: größe": "größe",
}


@pytest.mark.parametrize("text", MEANT)
def test_values_are_what_they_look_like(text: str, tmp_path: Path) -> None:
    (value,) = read(text, tmp_path).values()
    assert (value, type(value)) == (MEANT[text], type(MEANT[text]))


def nested_merges(levels: int) -> str:
    """Small, and endless for who builds what it says."""
    lines = ["a0: &a0 {seed: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, levels)]
    return "\n".join(lines)


REFUSED = {
    nested_merges(20): r"line 1: anchors \(&\) and aliases \(\*\) are not supported",
    "a: &a [x,x]\nb: &b [*a,*a]": "line 1: anchors",
    "seed: 1\nb: *a": "line 2: anchors",
    "seed: 1\n<<: {seed: 2}": r"line 2: merge keys \(<<\) are not supported",
    "<<: [{seed: 2}]": "line 1: merge keys",
    "seed: 1\nepochs: 2\nseed: 3": "line 3: 'seed' is given twice; remove one",
    "{seed: 1, 'seed': 3}": "line 1: 'seed' is given twice",
    "a: {b: 1, b: 2}": "line 1: 'b' is given twice",
    "[" * 5000: f"line 1: lists and mappings are more than {DEPTH} deep",
    "{a: " * 5000: "more than 4 deep",
    "- " * 5000: "more than 4 deep",
    "? " * 5000: "expected names of options",
    "[a, b]: 1": "line 1: expected names of options, got a list or mapping",
    "1: 2": "line 1: expected names of options, got '1'",
    "true: 2": "line 1: expected names of options, got 'true'",
    "? \n: 2": "expected names of options",
    "!!int 3: 2": "line 1: tags",
    "!!python/object/apply:os.system ['true']": "line 1: tags .* are not supported; write the value alone",
    "seed: !!binary aGk=": "line 1: tags",
    "seed: !!set {a, b}": "line 1: tags",
    f"seed: 0x{'f' * 5000}": "line 1: a number of 5,002 characters, '0xf{18}'; at most 40 are supported",
    "seed: 0xff": "line 1: '0xff' may mean different numbers, or a text; write a number in decimal",
    f"seed: {'9' * 5000}": "line 1: a number of 5,000 characters, '9{20}'; at most 40 are supported",
    f"seed: 1.{'9' * 5000}": "line 1: a number of 5,002 characters",
    "seed: 010": "'010' may mean different numbers",
    "seed: 0o17": "may mean",
    "seed: 0b11": "may mean",
    "seed: 1_0": "may mean",
    "seed: 1_000.5": "may mean",
    "learning_rate: .inf": "may mean",
    "learning_rate: -.INF": "may mean",
    "learning_rate: .NaN": "may mean",
    "learning_rate: 1e999": "line 1: '1e999' is no finite number",
    "seed: 1\n---\nseed: 2": "line 2: a second document begins",
    "": "it is empty",
    "---\n...": "it is empty",
    "- 1": "expected a mapping of options, as 'batch_size: 16'; got list",
    "seed": "expected a mapping of options, as 'batch_size: 16'; got str",
    "seed: [": "it is no YAML: line 1",
    "seed: 'x": "it is no YAML",
    "seed: @": "it is no YAML: line 1",
    "%YAML 9.9\n---\nseed: 1": "it is no YAML",
    "seed: 1\x07": "it is no YAML",
    "\tseed: 1": "it is no YAML",
}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("text", REFUSED, ids=[repr(text[:30]) for text in REFUSED])
def test_what_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=REFUSED[text]) as refused:
        read(text, tmp_path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_files_that_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(ResourceExhaustedError, match="does not fit: at most 65,536 bytes"):
        read("#" * (LIMIT + 1), tmp_path)
    with pytest.raises(FailedPreconditionError, match="expected a regular file, got a character device"):
        read_config_file("/dev/zero")
    (tmp_path / "bytes").write_bytes(b"seed: \xff")
    with pytest.raises(InvalidArgumentError, match="it is no YAML: 'utf-8' codec"):
        read_config_file(tmp_path / "bytes")


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**38), 10**38)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), max_size=20)
    | st.from_regex(r"[+-]?[0-9a-fox_.:eE]{1,6}", fullmatch=True)
    | st.sampled_from(["yes", "no", "null", "~", "<<", "1:30", ".inf", "true", "2001-01-01", "- a", "a: b"])
)
VALUES = SCALARS | st.lists(SCALARS | st.lists(SCALARS, max_size=3), max_size=3)


@pytest.mark.slow
@given(value=VALUES)
def test_what_is_written_is_read_as_it_was(value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    values = {"first": value, "second": value}
    assert repr(read(config_text(values), tmp_path_factory.getbasetemp())) == repr(values)


def test_a_run_s_own_options_are_read_as_they_were(tmp_path: Path) -> None:
    config = TrainingConfig(
        output="1e5", data_dir="010", learning_rate_drops=((1, 1e-7),), devices=("cpu:0", "cpu:1")
    )
    assert TrainingConfig.from_dict(read(config_text(config.to_dict()), tmp_path)) == config


PIECES = [
    *("seed", "model", "a", "<<", ": ", ":", "- ", "? ", ", ", "\n", "\n  ", " ", "\t", "#", "&a ", "*a"),
    *("[", "]", "{", "}", "'", '"', "|", ">", "!!int ", "!", "%YAML 1.1\n", "---\n", "...\n", "@", "`", "\\"),
    *("1", "0x", "0", "1e5", ".inf", "1:30", "yes", "~", "\x00", "\ufeff", "é", "\u2028", "9" * 50),
]


def mutated(rng: random.Random) -> str:
    return "".join(rng.choices(PIECES, k=rng.randint(1, rng.choice([4, 20, 200]))))


def attack(rounds: int, seed: int, tmp_path: Path) -> int:
    """Texts of odd pieces are read or refused in a line; how many are read."""
    rng, said, read_ones = random.Random(seed), [], 0
    for _ in range(rounds):
        text = mutated(rng)
        try:
            values = read(text, tmp_path)
        except InvalidArgumentError as error:
            said.append(str(error))
            continue
        read_ones += 1
        assert isinstance(values, dict), text
        assert all(isinstance(name, str) for name in values), text
        assert len(repr(values)) <= 8 * len(text) + 8, text
    assert not [line for line in said if "\n" in line or len(line) > 400]
    return read_ones


def test_odd_texts(tmp_path: Path) -> None:
    assert attack(300, 1, tmp_path) > 3


@pytest.mark.slow
def test_many_odd_texts(tmp_path: Path) -> None:
    assert attack(8_200, 2, tmp_path) > 80
