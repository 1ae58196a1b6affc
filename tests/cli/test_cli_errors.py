from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensorbow.cli.program as program
from tensorbow.cli.messages import LONGEST_LINE
from tensorbow.cli.signals import StopSignals
from tensorbow.cli.terminal import use_sound_size

Call = Callable[..., Any]
QUICK = ("train", "logreg", "--dataset", "synthetic", "--epochs", "1")
NAMES = "--devices: expected names such as cpu:0,cpu:1;"

BAD = [
    (("--nosuch",), "No such option '--nosuch'. See 'tensorbow --help'."),
    (("-x",), "No such option '-x'. See 'tensorbow --help'."),
    (("--debug=1",), "Option '--debug' does not take a value."),
    (("predict",), "Missing argument 'MODEL'. See 'tensorbow predict --help'."),
    (("evaluate", "x", "--split", "y"), "'y' is not one of 'test', 'train'"),
    (("nosuch",), "No such command 'nosuch'. See 'tensorbow --help'."),
    (("train",), "MODEL is missing: give it, or a --config file"),
    (("train", "resnet"), "MODEL: expected one of logreg, linear, lenet"),
    (("train", "resnet16"), "MODEL: expected a resnet of 6n+2 layers, n from 1 to 200, got 'resnet16'; "),
    (("explain", "resnet50000"), "the nearest is resnet1202"),
    (("train", "logreg", "extra"), "unexpected extra argument"),
    ((*QUICK, "--nosuch"), "No such option '--nosuch'. See 'tensorbow train --help'."),
    ((*QUICK, "--lr", "1"), "No such option '--lr'; did you mean --learning-rate? See"),
    ((*QUICK, "--leaning-rate=1"), "No such option '--leaning-rate'; did you mean --learning-rate? See"),
    (("train", "mlp", "--hidden", "64"), "No such option '--hidden'; did you mean --model.hidden? See"),
    ((*QUICK, "--hidden", "64"), "No such option '--hidden'. See"),
    ((*QUICK, "--replicas", "1"), "; did you mean --replicas-per-gpu?"),
    (("evaluate", "--data-folder", "x"), "; did you mean --data-dir?"),
    ((*QUICK, "--batch-size", "many"), "'many' is not a valid integer"),
    ((*QUICK, "--alpha", "much"), "'much' is not a valid float"),
    ((*QUICK, "--batch-size"), "requires an argument"),
    ((*QUICK, "--batch-size", "0"), "--batch-size: expected a whole number from 1 to 2147483647, got 0"),
    ((*QUICK, "--batch-size", "5000"), "4096 examples do not fill one batch of 5000"),
    ((*QUICK, "--batch-size", "5000"), "use a smaller --batch-size"),
    (
        (*QUICK, "--replicas-per-gpu", "0"),
        "--replicas-per-gpu: expected a whole number from 1 to 4096, or ",
    ),
    ((*QUICK, "--alpha", "0.7"), "--alpha: expected 0 < alpha < "),
    ((*QUICK, "--staleness", "1000000"), "--staleness: expected a whole number from 0 to 64, got 1000000"),
    ((*QUICK, "--weight-decay", "nan"), "--weight-decay: expected a number"),
    ((*QUICK, "--sync", "pair"), "--sync: expected one of sma, ssgd, easgd, diloco, none, got 'pair'"),
    ((*QUICK, "--optimizer", "adamm"), "got 'adamm'; did you mean adam?"),
    ((*QUICK, "--schedule", "cosin"), "got 'cosin'; did you mean cosine?"),
    ((*QUICK, "--metrics", "f2"), "got 'f2'; did you mean f1?"),
    ((*QUICK, "--learning-rate", "0.1,0.2"), "sweep MODEL --grid learning_rate=0.1,0.2 trains with each"),
    ((*QUICK, "--alpha", "0.1,0.2"), "--alpha: expected one number, got '0.1,0.2'"),
    ((*QUICK, "--on-nan", "pray"), "--on-nan: expected 'stop' or 'skip', got 'pray'"),
    ((*QUICK, "--sync", "none", "--ssgd-epoch", "1"), "--ssgd-epoch: expected sync sma"),
    ((*QUICK, "--devices", "gpu:0"), f"{NAMES} got 'gpu:0': "),
    (
        (*QUICK, "--devices", "cuda:0"),
        f"{NAMES} got 'cuda:0': this version has no CUDA device; a GPU is gpu:0",
    ),
    ((*QUICK, "--devices", "cpu:0,cpu:0"), "--devices: expected different ones"),
    ((*QUICK, "--devices", "cpu"), f"{NAMES} got 'cpu': it has no number; write cpu:0"),
    ((*QUICK, "--devices", ""), f"{NAMES} got '': it names no device"),
    ((*QUICK, "--devices", "cpu:x"), f"{NAMES} got 'cpu:x': it is no name of a device"),
    ((*QUICK, "--devices", "null:0"), f"{NAMES} got 'null:0': it records launches and computes nothing"),
    (
        (*QUICK, "--learning-rate-drops", "5"),
        "--learning-rate-drops: expected EPOCH:FACTOR pairs, as 10:0.1,15.5:0.01",
    ),
    ((*QUICK, "--learning-rate-drops", "1:nan"), "positive factors, got '1:nan'"),
    ((*QUICK, "--dataset", "cifar"), "--dataset: expected one of digits, mnist, "),
    ((*QUICK, "--dataset", "mnist"), "pass --data-dir or set TENSORBOW_DATA"),
    ((*QUICK, "--dataset", "mnist", "--data-dir", "nowhere"), "does not exist"),
    ((*QUICK, "--output", ""), "--output: expected a path"),
    ((*QUICK, "--resume", "nowhere"), "there is no file 'nowhere'; give a checkpoint, the folder"),
    ((*QUICK, "--resume", "/dev/zero"), "expected a regular file, got a character device"),
    ((*QUICK, "--config", "nowhere"), "--config: there is no file 'nowhere'"),
    ((*QUICK, "--learning-rate", "1e38", "--momentum", "0.99", "--epochs", "9"), "not finite at step"),
    (("explain", "vgg"), "MODEL: expected one of"),
    (("explain", "logreg", "--batch-size", "0"), "--batch-size: expected a whole number from 1"),
    (("explain", "logreg", "--replicas-per-gpu", str(10**9)), "expected a whole number from 1 to 4096"),
    (("explain", "logreg", "--staleness", "-1"), "--staleness: expected a whole number from 0 to 64, got -1"),
    (("explain", "logreg", "--devices", "gpu:0"), "got 'gpu:0': "),
    (
        ("predict", ".", ".", "--replica", "-1"),
        "--replica: expected a number from 0 to 999,999,999, got '-1'",
    ),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_one_line(call: Call, words: tuple[str, ...], said: str) -> None:
    ended = call(*words)
    assert said in ended.line
    assert ended.status == (2 if said.startswith("--") and "config" not in said else ended.status)
    assert ended.status in (1, 2)


def test_a_file_s_values_are_named_as_in_the_file(call: Call, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("batch_size: 0\n")
    ended = call(*QUICK, "--config", "c.yaml")
    assert "--config c.yaml: batch_size: expected a whole number from 1 to 2147483647, got 0" in ended.line
    assert ended.status == 2


CONFIGS = {
    "seed: [": "is no YAML",
    "- 1": "expected a mapping of options",
    "": "--config c.yaml: it is empty; expected options",
    "# nothing": "is empty",
    "colour: red": "unknown option 'colour'",
    "seed: 1.5": "seed: expected a whole number from 0 to 18446744073709551615, got 1.5",
    "seed: yes": "got 'yes'",
    "decay_all: 1": "decay_all: expected True or False, got 1",
    "decay_all: [yes]": "decay_all: expected True or False, got ['yes']",
    "decay_all: {a: 1}": "decay_all: expected True or False, got {'a': 1}",
    "max_seconds: 1:30:00": "max_seconds: expected a positive number, from 1.2e-38 to 3.4e+38, got '1:30:00'",
    f"learning_rate_drops: [{'[1,2],' * 5000}]": "of rising epochs above 0, up to",
    f"replicas_per_device: [{'1,' * 5000}]": "or one for each of 1 devices, got 1,1,1",
    "seed: 99999999999999999999": "to 18446744073709551615, got 99999999999999999999",
    "batch-size: 1\nbatch_size: 2": "is given twice",
    "1: 2": "expected names of options",
    "seed: 1\nepochs: 2\nseed: 3": "c.yaml: line 3: 'seed' is given twice; remove one",
    "seed: 1  # " + "x" * (1 << 16): "does not fit: at most 65,536 bytes",
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("text", CONFIGS, ids=list(map(repr, range(len(CONFIGS)))))
def test_bad_configuration_files(call: Call, tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    line = call(*QUICK, "--config", "c.yaml").line
    assert CONFIGS[text] in line
    assert len(line) < 1000


def test_a_configuration_file_of_bytes_and_a_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00\x01")
    assert "is no YAML" in call(*QUICK, "--config", "c.yaml").line
    assert "got a folder" in call(*QUICK, "--config", tmp_path).line
    os.mkfifo(tmp_path / "pipe")
    assert (
        "--config: cannot read 'pipe': expected a regular file, got a FIFO"
        in call(*QUICK, "--config", "pipe").line
    )


@pytest.mark.slow
def test_an_output_folder_that_cannot_be_made(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for output in ("file", "file/below"):
        assert "a file is in the way" in call(*QUICK, "--output", output).line
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.slow
def test_an_output_folder_that_holds_a_run(call: Call, tmp_path: Path) -> None:
    call(*QUICK, "--output", "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert "holds a run already; add --resume auto" in call(*QUICK, "--output", "run").line
    other = call("train", "lenet", "--output", "run", "--resume", "auto").line
    assert "of another run: MODEL was 'logreg', is 'lenet'; use the same options" in other
    every = call(
        *QUICK, "--output", "run", "--resume", "auto", "--sync", "easgd", "--tau", 2, "--seed", 1
    ).line
    assert ": --sync was 'sma', is 'easgd'; --tau was 1, is 2; --seed was 0, is 1; use the same" in every
    replicas = call(*QUICK, "--output", "run", "--resume", "auto", "--replicas-per-gpu", "4").line
    assert "--replicas-per-gpu was 2, is 4" in replicas
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.slow
def test_damaged_checkpoints(call: Call, tmp_path: Path) -> None:
    call(*QUICK, "--output", "run")
    path = tmp_path / "run" / "checkpoint-000000128.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    older = path.with_name("checkpoint-000000064.safetensors")
    older.write_bytes(b"")
    line = call(*QUICK, "--output", "run", "--resume", "auto").line
    assert f"no checkpoint in run can be read: {path.relative_to(tmp_path)} is truncated, damaged" in line
    assert line.count("damaged") == 1
    assert "; nor can 1 older; start anew" in line
    assert "use an earlier checkpoint" not in line
    assert "is truncated, damaged" in call(*QUICK, "--resume", path).line


def test_debug_shows_the_traceback_and_keeps_the_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (("--debug", *QUICK), (*QUICK, "--debug")):
        ended = call(*words, "--batch-size", 0)
        assert ended.status == 2
        assert "Traceback" in ended.err
        last = ended.err.splitlines()[-1]
        assert last == "tensorbow: --batch-size: expected a whole number from 1 to 2147483647, got 0"
    monkeypatch.setenv("TENSORBOW_DEBUG", "1")
    assert "Traceback" in call(*QUICK, "--batch-size", 0).err
    monkeypatch.setenv("TENSORBOW_DEBUG", "0")
    assert "Traceback" not in call(*QUICK, "--batch-size", 0).err


@pytest.mark.parametrize(
    ("error", "said", "status"),
    [
        (MemoryError(), "out of memory", 1),
        (KeyError("x"), "internal error: KeyError: 'x'; please report it", 1),
        (OSError(28, "No space left on device", "file"), "No space left on device: file", 1),
        (KeyboardInterrupt(), "interrupted", 130),
        (ValueError("two\nlines \x1b[31m"), "two lines \\x1b[31m", 1),
    ],
)
def test_every_other_error_is_a_line_too(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException, said: str, status: int
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(program, "_run", fails)
    ended = call("train")
    assert said in ended.line
    assert ended.status == status


def test_output_that_nobody_reads_ends_the_program_without_a_word(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(program, "_run", fails)
    ended = call("explain", "logreg")
    assert (ended.status, ended.err) == (141, "")


@pytest.mark.slow
def test_a_long_message_keeps_its_beginning_and_its_end(call: Call) -> None:
    text = "x" * (1 << 20)
    for words in (("train", text), (text,), (*QUICK, text), (*QUICK, f"--{text}"), (*QUICK, "--seed", text)):
        line = call(*words).line
        assert len(line) < LONGEST_LINE + 100
        assert "xxx" in line
    line = call("nosuch" + text).line
    assert line.startswith("tensorbow: No such command 'nosuchxxx")
    assert " characters ...] xxx" in line
    assert line.endswith("xxx'. See 'tensorbow --help'.\n")


@pytest.mark.parametrize("columns", ["0", "1", "19", "abc", "-5", "²", "1e9", "9" * 5_000, "100000000", ""])
@pytest.mark.sampled(1)
def test_a_width_in_which_nothing_can_be_shown_does_not_count(
    call: Call, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    for name in ("COLUMNS", "LINES"):
        monkeypatch.setenv(name, columns)
    for words in (("devices",), ("--help",), QUICK):
        ended = call(*words)
        assert ended.status == 0
        assert max(map(len, ended.out.splitlines())) < 300
        assert {"devices": "cpu", "--help": "predict", "train": "test accuracy"}[words[0]] in ended.out


def test_a_terminal_in_which_nothing_can_be_shown_does_not_count() -> None:
    for columns, lines in ((0, 0), (1, 1), (19, 5)):
        environment: dict[str, str] = {}
        use_sound_size(environment, os.terminal_size((columns, lines)))
        assert environment == {"COLUMNS": "80"}
    for given in ({}, {"COLUMNS": "20", "LINES": "1"}, {"COLUMNS": "1000"}):
        environment = dict(given)
        use_sound_size(environment, os.terminal_size((60, 20)))
        assert environment == given


def test_signals_are_given_back(call: Call) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    call("devices")
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_the_first_signal_asks_and_the_next_ones_are_the_same_wish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("tensorbow.cli.signals.time.monotonic", lambda: now[0])
    asked: list[int] = []
    signals = StopSignals()
    with signals.installed(), signals.calling(lambda: asked.append(1)):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert asked == [1]
        now[0] += 10
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_before_there_is_anything_to_stop_interrupts() -> None:
    signals = StopSignals()
    with signals.installed(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_another_thread_may_run_the_program() -> None:
    entered: list[bool] = []

    def work() -> None:
        with StopSignals().installed():
            entered.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert entered == [True]


def test_a_configuration_in_the_folder_is_named_without_a_model(call: Call, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model: logreg\n")
    for words in (("train",), ("sweep", "--seeds", 2)):
        assert "MODEL is missing: give it, or a --config file, as --config config.yaml" in call(*words).line
