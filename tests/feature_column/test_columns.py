"""Feature columns: numbers of features, dense and sparse, and what layers make of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, NotFoundError

fc: Any = tb.feature_column
COLOURS = np.array([["red", ""], ["blue", "red"], ["grey", "green"]], object)


@pytest.fixture(autouse=True)
def own_graph() -> Iterator[None]:
    with tb.Graph().as_default():
        tb.set_random_seed(3)
        yield


def run(*tensors: Any) -> Any:
    with tb.Session() as session:
        session.run([tb.global_variables_initializer(), tb.tables_initializer()])
        found = session.run(tensors)
    return found[0] if len(tensors) == 1 else found


def sparse(dense: Any, missing: Any) -> tb.SparseTensor:
    """The same features as a sparse tensor, without the missing ones."""
    dense = np.asarray(dense)
    indices = np.argwhere(dense != missing)
    return tb.SparseTensor(indices, tb.constant(dense[tuple(indices.T)].tolist()), dense.shape)


def hot(numbers: Any, count: int) -> Any:
    """The counts of numbers in each row; -1 is none."""
    return [[list(row).count(each) for each in range(count)] for row in numbers]


def test_numbers_are_normalised_and_bucketized() -> None:
    ages = fc.numeric_column("age", shape=2, normalizer_fn=lambda x: (x - 10) / 5)
    features = {"age": np.array([[5, 20], [10, 15]]), "one": [1.5, 2.5]}
    buckets = fc.bucketized_column(ages, boundaries=[-1, 0, 1])
    one = fc.numeric_column("one")
    found = run(fc.input_layer(features, [one, ages]), fc.input_layer(features, [buckets]))
    np.testing.assert_allclose(found[0], [[-1, 2, 1.5], [0, 1, 2.5]])
    np.testing.assert_array_equal(found[1], [[0, 1, 0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0, 1]])
    for boundaries in ([], [1, 1], [2, 1]):
        with pytest.raises(InvalidArgumentError, match="expected boundaries that rise"):
            fc.bucketized_column(ages, boundaries)


def vocabulary_file(folder: Path) -> str:
    path = folder / "colours"
    path.write_text("red\nblue\ngreen\n")
    return str(path)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_categories_of_words(is_sparse: bool, tmp_path: Path) -> None:
    features = {"colour": sparse(COLOURS, "") if is_sparse else COLOURS}
    hashed = fc.categorical_column_with_hash_bucket("colour", 7)
    columns = {
        fc.categorical_column_with_vocabulary_list("colour", ["red", "blue", "green"]): [
            [0],
            [1, 0],
            [-1, 2],
        ],
        fc.categorical_column_with_vocabulary_list("colour", ["red", "blue", "green"], default_value=1): [
            *[[0], [1, 0], [1, 2]]
        ],
        fc.categorical_column_with_vocabulary_list("colour", ["red", "blue", "green"], num_oov_buckets=1): [
            *[[0], [1, 0], [3, 2]]
        ],
        fc.categorical_column_with_vocabulary_file("colour", vocabulary_file(tmp_path)): [
            [0],
            [1, 0],
            [-1, 2],
        ],
        fc.categorical_column_with_vocabulary_file("colour", vocabulary_file(tmp_path), 2, 1): [
            [0],
            [1, 0],
            [2, 2],
        ],
    }
    found = run(*[fc.input_layer(features, fc.indicator_column(column)) for column in columns])
    for column, numbers, counts in zip(columns, columns.values(), found, strict=True):
        np.testing.assert_array_equal(counts, hot(numbers, column.num_buckets))
    words = [[word for word in row if word] for row in COLOURS.tolist()]
    flat = [word for row in words for word in row]
    buckets, counts = run(
        tb.string_to_hash_bucket_fast(flat, 7), fc.input_layer(features, fc.indicator_column(hashed))
    )
    by_word = dict(zip(flat, buckets.tolist(), strict=True))
    np.testing.assert_array_equal(counts, hot([[by_word[word] for word in row] for row in words], 7))


@pytest.mark.parametrize("is_sparse", [False, True])
def test_categories_of_whole_numbers(is_sparse: bool) -> None:
    rows = np.array([[0, -1], [7, 2]])
    features = {"n": sparse(rows, -1) if is_sparse else rows}
    identity = fc.categorical_column_with_identity("n", 3, default_value=1)
    listed = fc.categorical_column_with_vocabulary_list("n", [7, 0])
    hashed = fc.categorical_column_with_hash_bucket("n", 11, dtype=tb.int64)
    found = run(
        *[fc.input_layer(features, fc.indicator_column(column)) for column in (identity, listed, hashed)],
        tb.string_to_hash_bucket_fast(["0", "7", "2"], 11),
    )
    np.testing.assert_array_equal(found[0], hot([[0], [1, 2]], 3))
    np.testing.assert_array_equal(found[1], hot([[1], [0]], 2))
    first, *others = found[3].tolist()
    np.testing.assert_array_equal(found[2], hot([[first], others], 11))
    strict = fc.indicator_column(fc.categorical_column_with_identity("n", 3))
    with pytest.raises(InvalidArgumentError, match=r"features\['n'\]: expected numbers from 0 to 2"):
        run(fc.input_layer(features, strict))


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("combiner", ["mean", "sqrtn", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_embeddings_combine_rows(is_sparse: bool, combiner: str, weighted: bool) -> None:
    rows, weights = (
        np.array([[0, -1, 2], [1, 1, 0], [-1, -1, -1]]),
        np.array([[2.0, 9, 1], [1, 0.5, 3], [1, 1, 1]]),
    )
    used = np.where(rows < 0, 0.0, weights if weighted else 1.0)
    features: dict[str, Any] = {"n": rows, "w": weights.astype(np.float32)}
    if is_sparse:
        features["n"] = sparse(rows, -1)
    column = fc.categorical_column_with_identity("n", 3)
    if weighted:
        column = fc.weighted_categorical_column(column, "w")
    table = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)
    embedded = fc.embedding_column(column, 2, combiner, initializer=tb.constant_initializer(table))
    total = (table[rows] * used[:, :, None]).sum(1)
    norm = {"mean": used.sum(1), "sqrtn": np.sqrt((used**2).sum(1)), "sum": np.ones(3)}[combiner]
    expected = total / np.where(norm > 0, norm, 1)[:, None]
    indicated = fc.indicator_column(column)
    found = run(fc.input_layer(features, embedded), fc.input_layer(features, indicated))
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], np.stack([(used * (rows == n)).sum(1) for n in range(3)], 1))
    if is_sparse and weighted:
        features["w"] = tb.SparseTensor(
            features["n"].indices, weights[rows >= 0].astype(np.float32), rows.shape
        )
        np.testing.assert_allclose(run(fc.input_layer(features, indicated)), found[1])


def test_crosses_have_the_numbers_of_cross_hashed() -> None:
    sizes = np.array([[1.0], [5.0], [3.0]], np.float32)
    bucketized = fc.bucketized_column(fc.numeric_column("size"), [2.0, 4.0])
    identity = fc.categorical_column_with_identity("n", 9)
    inner = fc.crossed_column([bucketized, "colour"], 5)
    crossed = fc.crossed_column([inner, identity], 13)
    assert (crossed.name, len(crossed.keys)) == ("colour_X_n_X_size_bucketized", 3)
    features: dict[str, Any] = {"size": sizes, "colour": COLOURS, "n": np.array([[4], [-1], [8]])}
    expected = tb.sparse.cross_hashed(
        [tb.constant([[0], [2], [1]]), sparse(COLOURS, ""), sparse(features["n"], -1)], 13
    )
    for given in (features, features | {"colour": sparse(COLOURS, "")}):
        numbers, found = run(expected, fc.input_layer(given, fc.indicator_column(crossed)))
        rows = [
            [v for (r, _), v in zip(numbers.indices, numbers.values, strict=True) if r == row]
            for row in range(3)
        ]
        assert [len(row) for row in rows] == [1, 0, 2]
        np.testing.assert_array_equal(found, hot(rows, 13))
    for keys in ("colour", ["colour"], [fc.categorical_column_with_hash_bucket("colour", 3), "n"], [3, 4]):
        with pytest.raises(InvalidArgumentError, match="expected keys to be two or more keys"):
            fc.crossed_column(keys, 10)


def test_variables_have_tensorflows_names_shapes_and_collections() -> None:
    size, colour = fc.numeric_column("size"), fc.categorical_column_with_vocabulary_list("colour", ["red"])
    n = fc.categorical_column_with_identity("n", 4)
    shared = fc.shared_embedding_columns([n, fc.categorical_column_with_identity("m", 4)], 2)
    features = {"size": [1.0], "colour": [["red"]], "n": [[1]], "m": [[1]]}
    made: dict[Any, Any] = {}
    outputs: dict[Any, Any] = {}
    columns = [size, fc.embedding_column(colour, 3, trainable=False), *shared]
    net = fc.input_layer(features, columns, ["mine"], cols_to_vars=made, cols_to_output_tensors=outputs)
    assert net.shape == [1, 3 + 2 + 2 + 1]
    names = [v.op.name for v in tb.global_variables()]
    assert names == [
        f"input_layer/{name}/embedding_weights" for name in ("colour_embedding", "m_n_shared_embedding")
    ]
    assert (
        tb.get_collection("mine") == tb.get_collection(tb.GraphKeys.MODEL_VARIABLES) == tb.global_variables()
    )
    assert [v.op.name for v in tb.trainable_variables()] == names[1:]
    assert [len(made[column]) for column in columns] == [0, 1, 1, 1]
    assert made[shared[0]] == made[shared[1]]
    assert [outputs[column].shape[1] for column in columns] == [1, 3, 2, 2]
    logits = fc.linear_model(features, [size, colour, n], units=2, cols_to_vars=made)
    assert logits.shape == [1, 2]
    found = {v.op.name: v.shape.as_list() for v in tb.global_variables()[2:]}
    assert found == {
        "linear_model/colour/weights": [1, 2],
        "linear_model/n/weights": [4, 2],
        "linear_model/size/weights": [1, 2],
        "linear_model/bias_weights": [2],
    }
    assert [v.op.name for v in made["bias"]] == ["linear_model/bias_weights"]
    fc.input_layer(features, [fc.embedding_column(n, 2)], trainable=False)
    assert tb.global_variables()[-1].op.name == "input_layer_1/n_embedding/embedding_weights"
    assert tb.global_variables()[-1] not in tb.trainable_variables()
    with pytest.raises(InvalidArgumentError, match="expected columns of as many categories"):
        fc.shared_embedding_columns([n, colour], 2)


def test_the_default_table_has_a_deviation_of_one_by_the_root_of_the_dimension() -> None:
    column = fc.embedding_column(fc.categorical_column_with_identity("n", 4000), 16)
    fc.input_layer({"n": [[1]]}, column)
    table = run(tb.global_variables()[0])
    assert abs(table.std() / (0.25 * 0.88) - 1) < 0.02  # a normal distribution that is cut at 2 deviations
    assert np.abs(table).max() <= 0.5


def test_a_linear_model_adds_weights() -> None:
    size, n = fc.numeric_column("size"), fc.categorical_column_with_identity("n", 3)
    features = {"size": [[2.0], [3.0]], "n": np.array([[0, 2], [1, -1]])}
    logits = fc.linear_model(features, [size, n])
    weights = {v.op.name: v for v in tb.global_variables()}
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        np.testing.assert_array_equal(session.run(logits), [[0], [0]])
        weights["linear_model/size/weights"].load([[0.5]], session)
        weights["linear_model/n/weights"].load([[1.0], [10.0], [100.0]], session)
        weights["linear_model/bias_weights"].load([1000.0], session)
        np.testing.assert_allclose(session.run(logits), [[1 + 101 + 1000], [1.5 + 10 + 1000]])


def test_examples_are_parsed_by_the_columns() -> None:
    pytest.importorskip("google.protobuf")
    colour = fc.categorical_column_with_vocabulary_list("colour", ["red", "blue"])
    columns = [
        fc.numeric_column("size", 2, default_value=[3.0, 4.0]),
        fc.indicator_column(fc.weighted_categorical_column(colour, "weight")),
        fc.indicator_column(fc.crossed_column(["colour", "city"], 5)),
    ]
    spec = fc.make_parse_example_spec(columns)
    assert {key: type(each).__name__ for key, each in spec.items()} == {
        "size": "FixedLenFeature",
        **dict.fromkeys(("colour", "weight", "city"), "VarLenFeature"),
    }

    def example(**features: Any) -> bytes:
        kinds = {bytes: ("bytes_list", tb.train.BytesList), float: ("float_list", tb.train.FloatList)}
        made = {}
        for key, values in features.items():
            field, kind = kinds[type(values[0])]
            made[key] = tb.train.Feature(**{field: kind(value=values)})
        return tb.train.Example(features=tb.train.Features(feature=made)).SerializeToString()

    messages = [
        example(size=[1.0, 2.0], colour=[b"red", b"blue"], weight=[0.5, 2.0], city=[b"x"]),
        example(colour=[b"blue"], weight=[3.0]),
    ]
    layer = fc.input_layer(tb.parse_example(messages, spec), columns)
    found = run(layer)
    np.testing.assert_allclose(found[:, 5:7], [[0.5, 2], [0, 3]])
    np.testing.assert_array_equal(found[:, :5].sum(1), [2, 0])
    np.testing.assert_array_equal(found[:, 7:], [[1, 2], [3, 4]])
    with pytest.raises(
        InvalidArgumentError, match=r"make_parse_example_spec: feature 'size' is .* of one column"
    ):
        fc.make_parse_example_spec([columns[0], fc.bucketized_column(fc.numeric_column("size", 3), [1.0])])


def test_features_that_do_not_fit_are_named() -> None:
    colour = fc.indicator_column(fc.categorical_column_with_vocabulary_list("colour", ["red"]))
    size = fc.numeric_column("size")
    for features, column, error, words in (
        (
            {"color": [["red"]]},
            colour,
            NotFoundError,
            r"a feature 'colour', got \['color'\]; did you mean color\?",
        ),
        ({"colour": [[1]]}, colour, InvalidArgumentError, r"features\['colour'\]: expected strings"),
        (
            {"size": [["a"]]},
            size,
            InvalidArgumentError,
            r"features\['size'\]: expected a dense tensor of numbers",
        ),
        ({"size": 3.0}, size, InvalidArgumentError, r"features\['size'\]: expected \[batch, \.\.\.\]"),
        ({"size": [1.0]}, [size, size], InvalidArgumentError, "columns of different names, got size twice"),
        (
            {"colour": [["red"]]},
            colour.column,
            InvalidArgumentError,
            "give its indicator_column or embedding",
        ),
        ({}, 3, InvalidArgumentError, "expected feature_columns to be a list of columns"),
    ):
        with pytest.raises(error, match=words):
            fc.input_layer(features, column)
    with pytest.raises(InvalidArgumentError, match="expected num_oov_buckets or default_value"):
        fc.categorical_column_with_vocabulary_list("colour", ["red"], None, 0, 1)
    with pytest.raises(InvalidArgumentError, match="expected different words, got one twice"):
        fc.categorical_column_with_vocabulary_list("colour", ["red", "red"])


@pytest.mark.parametrize("batch", [None, 4])
def test_numbers_of_another_shape_than_their_columns(batch: int | None) -> None:
    features = {"x": tb.placeholder(tb.float32, [batch, 3])}
    with pytest.raises(InvalidArgumentError, match=r"features\['x'\]: expected 2 numbers for each example"):
        fc.input_layer(features, [fc.numeric_column("x", 2)])


def test_numbers_whose_shape_only_a_step_knows() -> None:
    x = tb.placeholder(tb.float32, [None, None])
    found = fc.input_layer({"x": x}, [fc.numeric_column("x", 2)])
    with tb.Session() as session:
        assert session.run(found, {x: [[1, 2]]}).tolist() == [[1, 2]]
        with pytest.raises(InvalidArgumentError, match="12 elements"):
            session.run(found, {x: np.ones((4, 3))})


def test_vocabularies_of_numbers_and_of_bools() -> None:
    assert fc.categorical_column_with_vocabulary_list("x", [np.int64(3), 4]).num_buckets == 2
    assert fc.categorical_column_with_vocabulary_list("x", [np.str_("a")]).num_buckets == 1
    with pytest.raises(InvalidArgumentError, match="strings or of whole numbers"):
        fc.categorical_column_with_vocabulary_list("x", [True, False])


@pytest.mark.parametrize("batches", [(1, 3), (2, 3)])
def test_crosses_of_different_batches(batches: tuple[int, int]) -> None:
    features = {key: np.ones((batch, 1), np.int64) for key, batch in zip("xy", batches, strict=True)}
    crossed = fc.input_layer(features, [fc.indicator_column(fc.crossed_column(["x", "y"], 5))])
    with pytest.raises(InvalidArgumentError, match=f"as many examples, got {batches[0]}, {batches[1]}"):
        run(crossed)


def test_a_cross_of_no_examples() -> None:
    features = {"x": np.zeros((0, 2), np.int64), "y": np.zeros((0, 1), np.int64)}
    crossed = fc.input_layer(features, [fc.indicator_column(fc.crossed_column(["x", "y"], 5))])
    assert run(crossed).shape == (0, 5)


def test_categories_of_too_many_axes() -> None:
    column = fc.embedding_column(fc.categorical_column_with_identity("x", 5), 2)
    with pytest.raises(InvalidArgumentError, match=r"features\['x'\]: expected categories \[batch, n\]"):
        fc.input_layer({"x": np.zeros((2, 3, 2), np.int64)}, [column])
