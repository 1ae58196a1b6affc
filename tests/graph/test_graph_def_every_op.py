"""Every op of the library, written to JSON and read back: the same text, the same bits."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.ops.attribute_kinds import check_attributes, kind_of
from tensorbow.ops.definition import OPS
from tests.graph.graph_def_programs import SMALL, call
from tests.ops_contract.collection import all_samples, product_ops

# Ops that read scalars that a session does not have.
SCHEDULED = ("SmaDifference", "SmaMove", "OuterStep", "GradientMean")


def results(graph, fetches, feeds):
    with graph.as_default(), tb.Session() as session:
        if tb.global_variables():
            session.run(tb.global_variables_initializer())
        values = [session.run(fetches, feeds) for _ in range(2)]
        values.append([session.run(v) for v in tb.global_variables()])
    return [
        [None if v is None else (np.asarray(v).shape, np.asarray(v).tobytes()) for v in r] for r in values
    ]


def test_every_attribute_has_a_kind_and_samples_are_of_it():
    for name, op in product_ops().items():
        assert [key for key in op.attrs if kind_of(op, key) is None] == [], name
    for sample in all_samples():
        check_attributes(sample.op, sample.complete_attrs)


@pytest.mark.parametrize("name", sorted({sample.op.name for sample in SMALL}))
@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.sampled(30)
def test_round_trip_of(name):
    for sample in [s for s in SMALL if s.op.name == name][:2]:
        with tb.Graph().as_default() as graph:
            fetches, feeds = call(sample)
        text = graph.as_graph_def().to_json()
        with tb.Graph().as_default() as copy:
            tb.import_graph_def(tb.GraphDef.from_json(text), name="")
        assert copy.as_graph_def().to_json() == text
        for mine, theirs in zip(graph.get_operations(), copy.get_operations(), strict=True):
            assert theirs.definition is mine.definition is OPS[mine.type]
            assert [t.spec.shape for t in theirs.outputs] == [t.spec.shape for t in mine.outputs]
            types = {key: type(value) for key, value in mine.attrs.items()}
            assert {key: type(value) for key, value in theirs.attrs.items()} == types
        if name in SCHEDULED:
            with pytest.raises(InvalidArgumentError, match=f"{name} made: it reads .*only a scheduler"):
                results(copy, fetches, feeds)
            continue
        np.testing.assert_equal(results(copy, fetches, feeds), results(graph, fetches, feeds))
