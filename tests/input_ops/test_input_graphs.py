"""Graphs of strings and input ops, written as JSON and as protocol buffers and read back."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError


def build(folder):
    """A graph with most ops of strings and files; the names of what to fetch."""
    text = tb.placeholder(tb.string, [None], name="text")
    fixed = tb.constant(["one", "\0two", "é"], name="fixed")
    example = tb.train.Example(
        features=tb.train.Features(
            feature={"x": tb.train.Feature(int64_list=tb.train.Int64List(value=[4, 5]))}
        )
    ).SerializeToString()
    parsed = tb.parse_single_example(
        tb.constant(example, name="example"),
        {
            "x": tb.FixedLenFeature([2], tb.int64),
            "y": tb.FixedLenFeature([], tb.string, default_value="\xff none"),
            "z": tb.VarLenFeature(tb.float32),
        },
    )
    fetches = [
        tb.string_join([text, fixed], "-"),
        tb.reduce_join(fixed, 0, separator="+"),
        tb.string_split(text, ",").values,
        tb.substr(text, 0, 1, unit="UTF8_CHAR"),
        tb.regex_replace(text, "a", "b"),
        tb.as_string([0.5, 2.0], precision=3, fill="0", width=9),
        tb.string_to_number(tb.string_strip(tb.constant([" 4 "]))),
        tb.string_to_hash_bucket_strong(text, 100, [3, 2**64 - 1]),
        tb.decode_csv(tb.constant("1,x"), [[0], ["y"]])[1],
        tb.decode_raw(fixed[0], tb.uint8),
        tb.read_file(f"{folder}/file"),
        tb.matching_files(f"{folder}/*"),
        tb.image.decode_png(tb.image.encode_png(np.zeros((1, 2, 3), np.uint8)), channels=1),
        tb.cond(tb.equal(text[0], "a"), lambda: tb.constant("yes"), lambda: tb.constant("no")),
        parsed["x"],
        parsed["y"],
        parsed["z"].dense_shape,
    ]
    queue = tb.FIFOQueue(9, tb.string, [[]], name="names")
    put = queue.enqueue(f"{folder}/file", name="put")
    fetches.append(tb.TextLineReader(skip_header_lines=1).read(queue)[1])
    return [tensor.name for tensor in fetches], put.name


def results(graph, names, put):
    with graph.as_default(), tb.Session() as session:
        session.run(put)
        values = [np.asarray(value, object) for value in session.run(names, {"text:0": ["a,b", "c", "de"]})]
    return [(value.shape, value.tolist()) for value in values]


def test_the_same_results_from_a_copy(tmp_path):
    (tmp_path / "file").write_text("first\nsecond\n")
    with tb.Graph().as_default() as graph:
        names, put = build(tmp_path)
    expected = results(graph, names, put)
    assert expected[0] == ((3,), [b"a,b-one", b"c-\0two", "de-é".encode()])
    assert expected[-1] == ((), b"second")
    definition = graph.as_graph_def()
    for copy_of in (
        tb.GraphDef.from_json(definition.to_json()),
        tb.GraphDef.FromString(definition.SerializeToString()),
    ):
        with tb.Graph().as_default() as copy:
            tb.import_graph_def(copy_of, name="")
        assert results(copy, names, put) == expected
        assert copy.as_graph_def().to_json() == definition.to_json()


def test_string_val_of_another_writer():
    """A repeated last element, as TensorFlow writes and reads constants."""
    from tensorbow.graph.protobuf.values import messages

    graph_def = messages()("GraphDef")()
    node = graph_def.node.add(name="c", op="Const")
    node.attr["dtype"].type = 7
    node.attr["value"].tensor.dtype = 7
    node.attr["value"].tensor.tensor_shape.dim.add(size=3)
    node.attr["value"].tensor.string_val.extend([b"a", b"\xff"])
    with tb.Graph().as_default(), tb.Session() as session:
        (c,) = tb.import_graph_def(
            tb.GraphDef.FromString(graph_def.SerializeToString()), return_elements=["c:0"], name=""
        )
        assert (c.dtype, session.run(c).tolist()) == (tb.string, [b"a", b"\xff", b"\xff"])
    for change in (
        lambda tensor: tensor.string_val.extend([b"c", b"d"]),
        lambda tensor: tensor.ClearField("string_val"),
        lambda tensor: setattr(tensor, "tensor_content", b"x"),
    ):
        bad = messages()("GraphDef")()
        bad.CopyFrom(graph_def)
        change(bad.node[0].attr["value"].tensor)
        with pytest.raises(InvalidArgumentError, match=r"a tensor string\[3\] with . string_val"):
            tb.GraphDef.FromString(bad.SerializeToString())
