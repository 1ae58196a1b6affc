"""Examples and sequences: messages as TensorFlow has them, parsed as dense, padded and sparse tensors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")

train = tb.train


def run(fetches, feeds=None):
    with tb.Session() as session:
        return session.run(fetches, feeds)


def feature(values):
    if isinstance(values, train.Feature):
        return values
    if values and isinstance(values[0], bytes):
        return train.Feature(bytes_list=train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return train.Feature(float_list=train.FloatList(value=values))
    return train.Feature(int64_list=train.Int64List(value=values))


def features(named):
    return train.Features(feature={name: feature(values) for name, values in named.items()})


def example(**named):
    return train.Example(features=features(named)).SerializeToString()


def dense(sparse):
    filler = b"" if sparse.values.dtype == object else 0
    result = np.full(sparse.dense_shape, filler, sparse.values.dtype)
    for where, value in zip(sparse.indices, sparse.values, strict=True):
        result[tuple(where)] = value
    return result.tolist()


def test_the_bytes_are_those_of_the_format():
    """Field by field, from the encoding of protocol buffers and TensorFlow's numbers of fields."""
    assert example(x=[1, 300]).hex() == "0a0e" + "0a0c" + "0a0178" + "1207" + "1a05" + "0a03" + "01ac02"
    assert example(f=[0.5]).hex() == "0a0f" + "0a0d" + "0a0166" + "1208" + "1206" + "0a04" + "0000003f"
    assert example(b=[b"z"]).hex() == "0a0c" + "0a0a" + "0a0162" + "1205" + "0a03" + "0a017a"


def test_a_batch_of_examples():
    serialized = [
        example(x=[1.0, 2.0], label=[3], words=[b"a", b"b"], i=[4, 1], v=[0.5, 0.25]),
        example(x=[5.0, 6.0], words=[b"c"], seq=[1, 2, 3, 4]),
    ]
    found = run(
        tb.parse_example(
            serialized,
            {
                "x": tb.FixedLenFeature([2, 1], tb.float32),
                "label": tb.FixedLenFeature([], tb.int64, default_value=-1),
                "name": tb.FixedLenFeature([1], tb.string, default_value="none"),
                "words": tb.VarLenFeature(tb.string),
                "pairs": tb.SparseFeature("i", "v", tb.float32, size=5),
                "seq": tb.FixedLenSequenceFeature([2], tb.int64, allow_missing=True, default_value=9),
            },
        )
    )
    assert found["x"].tolist() == [[[1], [2]], [[5], [6]]]
    assert found["label"].tolist() == [3, -1]
    assert found["name"].tolist() == [[b"none"], [b"none"]]
    assert dense(found["words"]) == [[b"a", b"b"], [b"c", b""]]
    assert dense(found["pairs"]) == [[0, 0.25, 0, 0, 0.5], [0] * 5]
    assert found["pairs"].indices.tolist() == [[0, 1], [0, 4]]
    assert found["seq"].tolist() == [[[9, 9], [9, 9]], [[1, 2], [3, 4]]]


def test_specs_are_known_while_the_graph_is_built():
    found = tb.parse_example(
        tb.placeholder(tb.string, [None]),
        {"a": tb.FixedLenFeature([2], tb.float32), "b": tb.VarLenFeature(tb.int64)},
    )
    assert found["a"].spec == tb.TensorSpec([None, 2], tb.float32)
    assert (found["b"].dtype, found["b"].indices.shape.as_list()) == (tb.int64, [None, 2])


def test_one_example():
    serialized = example(x=[1.0, 2.0], words=[b"a", b"b"], i=[2], v=[7])
    found = tb.parse_single_example(
        serialized,
        {
            "x": tb.FixedLenFeature([2], tb.float32),
            "words": tb.VarLenFeature(tb.string),
            "pairs": tb.SparseFeature("i", "v", tb.int64, 4),
            "seq": tb.FixedLenSequenceFeature([], tb.float32, allow_missing=True),
        },
    )
    assert found["x"].shape == [2]
    values = run(found)
    assert values["x"].tolist() == [1, 2]
    assert dense(values["words"]) == [b"a", b"b"]
    assert dense(values["pairs"]) == [0, 0, 7, 0]
    assert values["seq"].shape == (0,)


def test_no_examples():
    found = run(
        tb.parse_example(
            np.empty(0, object),
            {"x": tb.FixedLenFeature([2], tb.float32), "y": tb.VarLenFeature(tb.int64)},
        )
    )
    assert found["x"].shape == (0, 2)
    assert found["y"].dense_shape.tolist() == [0, 0]


def test_a_sequence():
    steps = train.FeatureLists(
        feature_list={
            "x": train.FeatureList(feature=[feature([1.0, 2.0]), feature([3.0, 4.0])]),
            "words": train.FeatureList(feature=[feature([b"a"]), feature([b"b", b"c"]), train.Feature()]),
        }
    )
    message = train.SequenceExample(context=features({"length": [2]}), feature_lists=steps)
    context, sequence = run(
        tb.parse_single_sequence_example(
            message.SerializeToString(),
            {"length": tb.FixedLenFeature([], tb.int64), "tags": tb.VarLenFeature(tb.string)},
            {
                "x": tb.FixedLenSequenceFeature([2], tb.float32),
                "words": tb.VarLenFeature(tb.string),
                "none": tb.FixedLenSequenceFeature([3], tb.int64, allow_missing=True),
            },
        )
    )
    assert context["length"] == 2
    assert context["tags"].dense_shape.tolist() == [0]
    assert sequence["x"].tolist() == [[1, 2], [3, 4]]
    assert dense(sequence["words"]) == [[b"a", b""], [b"b", b"c"], [b"", b""]]
    assert sequence["none"].shape == (0, 3)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), min_size=1, max_size=4))
def test_numbers_of_any_length_come_back(rows):
    with tb.Graph().as_default():
        serialized = [example(x=row) for row in rows]
        found = run(tb.parse_example(serialized, {"x": tb.VarLenFeature(tb.int64)}))["x"]
    assert [[i for r, i in found.indices.tolist() if r == row] for row in range(len(rows))] == [
        list(range(len(row))) for row in rows
    ]
    assert found.values.tolist() == [value for row in rows for value in row]


def test_examples_from_a_file_train_a_model(tmp_path):
    """The classic pipeline: files of examples, reader, parser, shuffled batches, training step."""
    x = np.random.default_rng(0).normal(size=(120, 2)).astype(np.float32)
    for part in range(2):
        with tb.python_io.TFRecordWriter(tmp_path / f"part{part}") as writer:
            for row in x[part::2].tolist():
                writer.write(example(x=row, y=[3 * row[0] - row[1]]))
    names = train.match_filenames_once(f"{tmp_path}/part*")
    queue = train.string_input_producer(names, num_epochs=12, seed=3)
    _, serialized = tb.TFRecordReader().read(queue)
    parsed = tb.parse_single_example(
        serialized, {"x": tb.FixedLenFeature([2], tb.float32), "y": tb.FixedLenFeature([], tb.float32)}
    )
    batch = train.shuffle_batch(parsed, 12, capacity=100, min_after_dequeue=30, num_threads=2, seed=3)
    w = tb.Variable(tb.zeros([2, 1]))
    loss = tb.reduce_mean(tb.square(tb.matmul(batch["x"], w)[:, 0] - batch["y"]))
    step = train.GradientDescentOptimizer(0.1).minimize(loss)
    steps = 0
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        coordinator = train.Coordinator()
        threads = train.start_queue_runners(session, coordinator)
        with coordinator.stop_on_exception():
            while not coordinator.should_stop():
                session.run(step)
                steps += 1
        coordinator.join(threads)
        np.testing.assert_allclose(session.run(w)[:, 0], [3, -1], atol=1e-3)
    assert steps == 120


X = {"x": tb.FixedLenFeature([2], tb.float32)}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tb.parse_example([example(), example()], X), "example 0: feature 'x' .float32. is required"),
        (lambda: tb.parse_example([example(x=[1.0])], X), r"has 1 values, expected 2 for shape \[2\]"),
        (lambda: tb.parse_example([example(x=[1, 2])], X), "'x' has values of int64, expected float32"),
        (lambda: tb.parse_example([b"\xff"], X), "example 0 is truncated or no Example"),
        (lambda: tb.parse_example([example()], X, example_names=["first"]), "example 0 'first': feature 'x'"),
        (lambda: tb.parse_example([example()], X, example_names=["a", "b"]), "2 example_names for 1 "),
        (lambda: tb.parse_example(example(), X), "expected a vector; use tb.parse_single_example"),
        (lambda: tb.parse_single_example([example()], X), "expected a scalar; use tb.parse_example"),
        (lambda: tb.parse_example([example()], {}), "expected features to be features by name"),
        (lambda: tb.parse_example([example()], {"x": tb.float32}), "expected features to be FixedLenF"),
        (lambda: tb.parse_example([""], {"x": tb.FixedLenSequenceFeature([], tb.int64)}), "allow_missing"),
        (lambda: tb.FixedLenFeature([None], tb.int64), "expected one that is fully known"),
        (lambda: tb.FixedLenFeature([], tb.int32), "expected dtype to be tb.float32, tb.int64 or tb.string"),
        (
            lambda: tb.parse_example([""], {"x": tb.FixedLenFeature([2], tb.int64, [1, 2, 3])}),
            r"default_value of feature 'x' has shape \[3\], expected \[2\]",
        ),
        (
            lambda: tb.parse_example([example(i=[5], v=[1])], {"x": tb.SparseFeature("i", "v", tb.int64, 5)}),
            "has positions .5., expected numbers from 0 to 4",
        ),
        (
            lambda: tb.parse_example([example(i=[1])], {"x": tb.SparseFeature("i", "v", tb.int64, 5)}),
            "feature 'i' has 1 positions, feature 'v' 0 values",
        ),
        (
            lambda: tb.parse_single_sequence_example(
                b"", sequence_features={"x": tb.FixedLenSequenceFeature([], tb.int64)}
            )[1],
            "feature list 'x' is required and missing; give allow_missing=True",
        ),
        (lambda: tb.parse_single_sequence_example(b""), "expected context_features to be features by name"),
    ],
)  # fmt: skip
def test_refused(make, words):
    with pytest.raises(InvalidArgumentError, match=words):
        run(make())


def test_without_protobuf(monkeypatch):
    from tensorbow.input_ops import example_messages

    example_messages._classes.cache_clear()
    example_messages.example_message.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf", None)
    with pytest.raises(FailedPreconditionError, match=r"pip install 'tensorbow\[protobuf\]'"):
        train.Example  # noqa: B018
