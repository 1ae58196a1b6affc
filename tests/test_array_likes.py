"""Arrays of other libraries keep their dtype and memory, wherever a program gives one."""

import array
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Stepper
from tensorbow.array_likes import ArrayLike, as_array
from tensorbow.errors import InvalidArgumentError


class ByArray:
    """Array like PyTorch's, JAX's and pandas': iterable and with a length."""

    def __init__(self, values: Any):
        self.values = values
        self.shape = values.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values if dtype is None else self.values.astype(dtype)

    def __iter__(self) -> Any:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)


class ByInterface:
    def __init__(self, values: Any):
        self.values = values
        self.__array_interface__ = values.__array_interface__


class ByDlpack:
    def __init__(self, values: Any):
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


class Elsewhere:
    """Array on a GPU like CuPy's, which refuses the conversion with advice."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.\nPlease use `.get()`.")


def torch_tensor(values: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(values)


KINDS = {"array": ByArray, "interface": ByInterface, "dlpack": ByDlpack, "buffer": memoryview}
MAKERS = [
    *(pytest.param(make, id=name) for name, make in KINDS.items()),
    pytest.param(torch_tensor, id="torch", marks=pytest.mark.slow),
]
DTYPES = [np.int64, np.float64, np.uint8, np.int32, np.float32]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", MAKERS)
def test_an_array_keeps_its_dtype_and_its_memory(make):
    for dtype in DTYPES:
        values = np.arange(6, dtype=dtype).reshape(2, 3)
        given = make(values)
        assert isinstance(given, ArrayLike)
        assert np.shares_memory(as_array(given), values)
        with tb.Graph().as_default(), tb.Session() as session:
            tensors = [tb.constant(given), tb.convert_to_tensor(given), tb.identity(given)]
            variables = [
                tb.Variable(given, name="v"),
                tb.get_variable("w", initializer=given),
            ]
            x = tb.placeholder(dtype, [2, 3])
            assert [t.dtype.as_numpy_dtype for t in (*tensors, *variables)] == [dtype] * 5
            session.run(tb.global_variables_initializer())
            for result in (*session.run([*tensors, *variables]), session.run(x, {x: given})):
                np.testing.assert_array_equal(result, values)
                assert result.dtype == dtype
            session.load_variables({"v": make(values + values)})
            np.testing.assert_array_equal(session.run("v:0"), values + values)


def test_buffers_and_numbers():
    assert as_array(array.array("d", [1, 2])).dtype == np.float64
    assert as_array(bytearray(b"ab")).dtype == np.uint8
    with tb.Graph().as_default():
        assert tb.constant(array.array("f", [1, 2])).dtype == tb.float32
        # Python's own numbers and lists have no dtype: TensorFlow's rule.
        assert [tb.constant(v).dtype for v in (1, [1, 2], 1.5, [[1.5]], True)] == [
            tb.int32,
            tb.int32,
            tb.float32,
            tb.float32,
            tb.bool,
        ]
        x = tb.constant([1.0, 2.0])
        assert (x * ByArray(np.ones(2, np.float32))).dtype == tb.float32
        mixed = tb.stack([x, ByArray(np.zeros(2, np.float32))])
        assert mixed.shape == [2, 2]
    assert not any(isinstance(v, ArrayLike) for v in (1, 1.5, [1], "a", None, range(3), np.ndarray))


def test_what_cannot_be_read_is_one_line():
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float32, [2], name="x")
        words = (
            r"cannot make an array of Elsewhere: Implicit conversion .* use `\.get\(\)`; give a NumPy array"
        )
        with pytest.raises(InvalidArgumentError, match=f"^constant: value: {words}$"):
            tb.constant(Elsewhere())
        with pytest.raises(InvalidArgumentError, match=f"^feed x:0: {words} "):
            session.run(x, {x: Elsewhere()})
        with pytest.raises(InvalidArgumentError, match=r"dtype \w+ is not supported"):
            tb.constant(ByArray(np.ones(2, np.clongdouble)))
        np.testing.assert_array_equal(session.run(x, {x: ByArray(np.ones(2, np.int16))}), [1, 1])
        with pytest.raises(InvalidArgumentError, match="feed x:0: expected shape"):
            session.run(x, {x: ByArray(np.ones(3))})


@pytest.mark.slow
def test_tensors_of_pytorch_in_bfloat16_keep_their_dtype():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([[1.0, -2.5], [3.0, 0.25]], dtype=torch.bfloat16)
    with tb.Graph().as_default(), tb.Session() as session:
        for given in (tensor, tensor.T):
            constant, x = tb.constant(given), tb.placeholder(tb.bfloat16, [2, 2])
            assert constant.dtype == tb.bfloat16
            found = session.run([constant, x], {x: given})
            for array in found:
                np.testing.assert_array_equal(array.astype(np.float32), given.float().numpy())
    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2)
    steps = replicator.train(lambda x: tb.reduce_sum(tb.cast(x, tb.float32)), lambda i: [tensor], steps=1)
    assert [list(sums) for sums in steps] == [[1.75, 1.75]]


@pytest.mark.slow
def test_tensors_of_pytorch_that_are_no_host_arrays():
    torch = pytest.importorskip("torch")
    with tb.Graph().as_default():
        for tensor, words in (
            (
                torch.ones(2, requires_grad=True),
                r"requires grad. Use tensor.detach\(\).numpy\(\) instead; give",
            ),
            (torch.ones(2, device="meta"), r"Use Tensor.cpu\(\) to copy the tensor"),
        ):
            with pytest.raises(
                InvalidArgumentError,
                match=f"^Variable: initial_value: cannot make an array of Tensor: .*{words}",
            ):
                tb.Variable(tensor)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("replication", [tb.PER_REPLICA, tb.PER_WORKER])
def test_inputs_of_a_replicator(make, replication):
    images = np.arange(8, dtype=np.uint8).reshape(4, 2)
    labels = np.arange(4, dtype=np.int64)
    weights = np.arange(4, dtype=np.float64)

    def nests():
        while True:
            yield {"images": make(images), "labels": make(labels), "weights": make(weights)}

    def whole():  # an array is the batch of every step, and not its rows
        return make(weights)

    seen = []

    def step(nest):
        seen.append({name: tensor.dtype for name, tensor in nest.items()})
        return tb.reduce_sum(tb.cast(nest["labels"], tb.float64) * nest["weights"])

    replicator = tb.MultiGpuReplicator(["/cpu:0"], 2)
    sums = [2 * 2 + 3 * 3 + 1, 2 * 2 + 3 * 3 + 1] if replication == tb.PER_REPLICA else [1, 13]
    for result in replicator.train(step, nests, 2, replication):
        np.testing.assert_array_equal(result, sums)
    assert seen == [{"images": tb.uint8, "labels": tb.int64, "weights": tb.float64}]
    shapes = []
    list(replicator.train(lambda x: shapes.append(x.shape.as_list()) or x, whole, 1, replication))
    assert shapes == [[4] if replication == tb.PER_REPLICA else [2]]


@pytest.mark.parametrize("make", [ByArray, ByDlpack])
def test_batches_of_engines_and_feeds_of_sessions(make):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, [None, 3])
        w = tb.Variable(np.zeros(3, np.float32), name="w")
        loss = tb.reduce_mean(tb.square(w - x))
        update = tb.train.GradientDescentOptimizer(0.5).minimize(loss)
        initializer = tb.global_variables_initializer()
    with tb.LearningEngine(tb.StepProgram((x,), loss, update), 2, replicas_per_device=1) as engine:
        engine.initialize({"w": make(np.zeros(3, np.float32))})
        with Stepper(engine) as stepper:
            stepper.step([(make(values),)])
            with pytest.raises(InvalidArgumentError, match=r"must be float32\[2, 3\] .* got float64\[2, 3\]"):
                stepper.step([(make(values.astype(np.float64)),)])
        found = engine.central_values()["w"]
    np.testing.assert_allclose(found, values.mean(0) / 3, rtol=1e-6)
    with tb.Session("tensorbow", graph, replicas_per_device=2) as session:
        session.run(initializer)
        session.run(update, {x: make(np.concatenate([values, values + 1]))})
        for replica in range(2):
            expected = (values + replica).mean(0) / 3
            np.testing.assert_allclose(session.replica_values(replica)["w"], expected, rtol=1e-6)


@pytest.mark.parametrize("make", [ByArray, ByInterface, ByDlpack])
def test_data_sets_and_initialisers(make):
    images, labels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4, 1), np.array([1, 0])
    data = tb.data.ImageDataset(
        "mine", make(images), make(labels), 2, *tb.data.pixel_statistics(make(images))
    )
    np.testing.assert_array_equal(data.images, images)
    np.testing.assert_array_equal(data.batch(make(np.array([1])))[1], [0])
    with tb.Graph().as_default(), tb.Session() as session:
        w = tb.get_variable("w", [2], tb.float64, tb.initializers.constant(make(np.array([0.1, 0.2]))))
        session.run(tb.global_variables_initializer())
        np.testing.assert_array_equal(session.run(w), [0.1, 0.2])
