"""`warm_start`: which variables start from a checkpoint, under which names, with which words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, NotFoundError

OLD = np.arange(8, dtype=np.float32).reshape(4, 2)  # rows of a, b, c and d


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[str]:
    with tb.Graph().as_default(), tb.Session() as session:
        tb.Variable(OLD, name="embedding")
        tb.Variable([5.0, 6.0], name="old/bias")
        tb.Variable(7, name="step")
        session.run(tb.global_variables_initializer())
        path = tb.train.Saver().save(session, str(tmp_path / "model"))
    (tmp_path / "old.txt").write_text("a\nb\nc\nd\n")
    (tmp_path / "new.txt").write_text("c\nnew\na\nunused\n")
    with tb.Graph().as_default():
        yield path


def started(*variables: Any) -> list[Any]:
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        return [value.tolist() for value in session.run(list(variables))]


def test_trainable_variables_start_by_default(checkpoint: str) -> None:
    embedding = tb.Variable(np.zeros((4, 2), np.float32), name="embedding")
    step = tb.Variable(0, name="step", trainable=False)
    tb.train.warm_start(checkpoint)
    assert started(embedding, step) == [OLD.tolist(), 0]
    tb.train.warm_start(checkpoint, ["st"])
    assert started(step) == [7]


def test_variables_of_other_names(checkpoint: str) -> None:
    bias = tb.Variable([0.0, 0.0], name="bias")
    other = tb.Variable([0.0, 0.0], name="other")
    tb.train.warm_start(checkpoint, [bias], var_name_to_prev_var_name={"bias": "old/bias"})
    assert started(bias, other) == [[5, 6], [0, 0]]
    with pytest.raises(NotFoundError, match="other"):
        tb.train.warm_start(checkpoint, "oth")
    with pytest.raises(NotFoundError, match="vars_to_warm_start: no variable matches nothing"):
        tb.train.warm_start(checkpoint, "nothing")
    with pytest.raises(NotFoundError, match=r"bias .* is not among the variables to start: other"):
        tb.train.warm_start(checkpoint, "other", var_name_to_prev_var_name={"bias": "old/bias"})
    with pytest.raises(InvalidArgumentError, match=r"other:0 is \[2\], but embedding in .* is \[4, 2\]"):
        tb.train.warm_start(checkpoint, [other], var_name_to_prev_var_name={"other": "embedding"})


@pytest.mark.parametrize("partitioner", [None, tb.fixed_size_partitioner(2)])
def test_words_that_have_other_numbers(checkpoint: str, partitioner: Any) -> None:
    folder = Path(checkpoint).parent
    info = tb.train.VocabInfo(
        folder / "new.txt", 3, 1, folder / "old.txt", backup_initializer=tb.constant_initializer(9.0)
    )
    embedding = tb.get_variable("embedding", [4, 2], initializer="zeros", partitioner=partitioner)
    tb.train.warm_start(checkpoint, None, {"embedding": info})
    assert started(tb.convert_to_tensor(embedding)) == [[[4, 5], [9, 9], [0, 1], [9, 9]]]


def test_columns_and_the_first_old_words(checkpoint: str) -> None:
    folder = Path(checkpoint).parent
    (folder / "columns.txt").write_text("y\nz\n")
    (folder / "old_columns.txt").write_text("z\ny\nx\n")
    embedding = tb.Variable(np.ones((4, 2), np.float32), name="embedding")
    info = tb.train.VocabInfo(folder / "columns.txt", 2, 0, folder / "old_columns.txt", 1, axis=1)
    tb.train.warm_start(checkpoint, None, {"embedding": info})
    assert started(embedding) == [[[0, each] for each in OLD[:, 0].tolist()]]
    long = tb.train.VocabInfo(folder / "columns.txt", 9, 0, folder / "old.txt")
    with pytest.raises(InvalidArgumentError, match="expected 9 lines, got 2"):
        tb.train.warm_start(checkpoint, None, {"embedding": long})
    wide = tb.train.VocabInfo(folder / "new.txt", 3, 0, folder / "old.txt", axis=1)
    with pytest.raises(InvalidArgumentError, match=r"expected a row along axis 1 for each of the 3 words"):
        tb.train.warm_start(checkpoint, None, {"embedding": wide})
    with pytest.raises(InvalidArgumentError, match="expected axis to be a whole number from 0 to 1"):
        tb.train.VocabInfo("a", 1, 0, "b", axis=2)


def test_variables_in_host_memory(tmp_path: Path) -> None:
    def variables(words: list[str], numbers: list[float]) -> tuple[Any, Any]:
        return tb.Variable(words, name="words"), tb.Variable(numbers, validate_shape=False, name="numbers")

    with tb.Graph().as_default(), tb.Session() as session:
        variables(["a", "b"], [1.0, 2.0])
        session.run(tb.global_variables_initializer())
        path = tb.train.Saver().save(session, str(tmp_path / "model"))
    with tb.Graph().as_default():
        made = variables(["", ""], [0.0, 0.0, 0.0])
        tb.train.warm_start(path, ["words", "numbers"])
        assert started(*made) == [[b"a", b"b"], [1, 2]]
