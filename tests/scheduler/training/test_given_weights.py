"""Runs that begin with given weights: their bits, where the weights come from, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import tensorbow as tb
from scheduler import TrainedModel, Trainer, TrainingConfig
from tensorbow.errors import DataLossError, InvalidArgumentError, NotFoundError
from tensorbow.specs import Array
from tensorbow.training import load_arrays, save_arrays
from tests.scheduler_rig.kept_lines import Lines
from tests.scheduler_rig.running import same_bits

pytestmark = pytest.mark.usefixtures("reference_kernels")  # what they compute does not matter here
Options = Callable[..., TrainingConfig]
MODEL = "model.safetensors"


def begun(config: TrainingConfig, **given: Any) -> tuple[dict[str, Array], list[str]]:
    """z before the first round, after a check that all replicas have it, and the printed lines."""
    lines = Lines()
    with Trainer(config, lines, **given) as trainer:
        z: dict[str, Array] = trainer.engine.central_values()
        for replica in range(trainer.config.replicas):
            own = trainer.engine.learners.values.replica_values(replica)
            assert same_bits({name: own[name] for name in z}, z)
        return z, lines.said


def small_net(inputs: Any, labels: Any, training: bool) -> Any:
    """A network with a batch normalisation, whose statistics are weights, too."""
    with tb.variable_scope("net", reuse=tb.AUTO_REUSE):
        hidden = tb.layers.dense(tb.layers.flatten(inputs), 4, name="fc1")
        hidden = tb.nn.relu(tb.layers.batch_normalization(hidden, training=training, name="bn"))
        logits = tb.layers.dense(hidden, 10, name="fc2")
    return tb.reduce_mean(
        tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    ), logits


def test_weights_of_step_0_train_to_the_bits_of_the_plain_run(tmp_path: Path, options: Options) -> None:
    config = options(model=small_net, epochs=1, output=tmp_path / "plain")
    with Trainer(config) as trainer:
        start = trainer.engine.central_values()
        trainer.train()
    expected, _ = load_arrays(tmp_path / "plain" / MODEL)
    assert not same_bits(start, expected)
    save_arrays(tmp_path / "start.safetensors", start, {})
    again = options(
        model=small_net, epochs=1, output=tmp_path / "given", weights=tmp_path / "start.safetensors"
    )
    with Trainer(again) as trainer:
        trainer.train()
    assert same_bits(load_arrays(tmp_path / "given" / MODEL)[0], expected)
    moved = {name: value + np.float32(0.01) for name, value in start.items()}
    with Trainer(options(model=small_net, epochs=1), weights=moved) as trainer:
        assert same_bits(trainer.engine.central_values(), moved)
        trainer.train()
        assert not same_bits(trainer.engine.central_values(), expected)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", ["sma", "none", "ssgd"])
def test_all_replicas_begin_with_the_weights_of_an_earlier_run(
    tmp_path: Path, options: Options, sync: str
) -> None:
    """Given by its folder, its file, an export, or the values; a new optimiser begins without slots."""
    with Trainer(options(output=tmp_path / "run", epochs=1)) as trainer:
        trainer.train()
    expected, _ = load_arrays(tmp_path / "run" / MODEL)
    with TrainedModel(tmp_path / "run") as trained:
        trained.export(tmp_path / "export")
    for weights in (tmp_path / "run", tmp_path / "run" / MODEL, tmp_path / "export"):
        z, lines = begun(options(weights=weights, sync=sync, optimizer="adam"))
        assert same_bits(z, expected)
        assert f"weights: {weights}: taken by 2 variables" in lines
    z, lines = begun(options(sync=sync), weights=expected)
    assert same_bits(z, expected)
    assert "weights: the given state: taken by 2 variables" in lines


def test_a_run_that_is_resumed_goes_on_with_its_checkpoint_and_says_so(
    tmp_path: Path, options: Options
) -> None:
    """The file need not be there any more."""
    file, run = tmp_path / "w.safetensors", tmp_path / "run"
    save_file({"weight": np.ones((10, 784), np.float32), "bias": np.ones(10, np.float32)}, file)
    with Trainer(options(output=run, epochs=1, weights=file)) as trainer:
        trainer.train()
        expected = trainer.engine.central_values()
    file.unlink()
    said = Lines()
    with Trainer(options(output=run, epochs=2, weights=file, resume="auto"), said) as trainer:
        assert same_bits(trainer.engine.central_values(), expected)
    assert "weights are not read: the checkpoint has the run's own" in said.said
    with pytest.raises(NotFoundError, match=r"w\.safetensors"):
        begun(options(output=tmp_path / "new", weights=file))
    assert not (tmp_path / "new").exists()


def state_of_pytorch() -> dict[str, Array]:
    """A state dict of a module as `small_net`."""
    rng = np.random.default_rng(0)
    shapes = {"fc1.weight": (4, 784), "fc1.bias": (4,), "fc2.weight": (10, 4), "fc2.bias": (10,)}
    shapes |= {f"bn.{name}": (4,) for name in ("weight", "bias", "running_mean", "running_var")}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_weights_of_pytorch_are_converted(tmp_path: Path, options: Options) -> None:
    """From a file, and from a state dict; a counter of PyTorch is left out."""
    state = state_of_pytorch()
    save_file({**state, "bn.num_batches_tracked": np.array(3)}, tmp_path / "w.safetensors")
    for given in ({"weights": tmp_path / "w.safetensors"}, {}):
        config = options(model=small_net, **given)
        z, _ = begun(config) if given else begun(config, weights=state)
        assert z.keys() == {
            *(f"net/{layer}/{part}" for layer in ("fc1", "fc2") for part in ("kernel", "bias")),
            *(f"net/bn/{part}" for part in ("gamma", "beta", "moving_mean", "moving_variance")),
        }
        np.testing.assert_array_equal(z["net/fc1/kernel"], state["fc1.weight"].T)
        np.testing.assert_array_equal(z["net/bn/moving_variance"], state["bn.running_var"])


def test_a_head_is_left_out_and_begins_at_random(tmp_path: Path, options: Options) -> None:
    state = state_of_pytorch() | {
        "fc2.weight": np.ones((7, 4), np.float32),
        "fc2.bias": np.ones(7, np.float32),
    }
    plain, _ = begun(options(model=small_net))
    z, lines = begun(options(model=small_net, weights_skip="fc2.*"), weights=state)
    np.testing.assert_array_equal(z["net/fc1/bias"], state["fc1.bias"])
    for name in ("net/fc2/kernel", "net/fc2/bias"):
        np.testing.assert_array_equal(z[name], plain[name])
    said = "taken by 6 variables; net/fc2/kernel, net/fc2/bias begin without"
    assert f"weights: the given state: {said}" in lines
    own = {name: value for name, value in plain.items() if "fc2" not in name}
    own["net/fc2/kernel"], own["net/fc2/bias"] = np.ones((4, 7), np.float32), np.ones(7, np.float32)
    z, lines = begun(options(model=small_net, weights_skip=["net/fc2/*"]), weights=own)
    assert same_bits(z, plain)
    assert f"weights: the given state: {said}" in lines


def test_names_of_scopes_and_modules(options: Options) -> None:
    state = {
        name.replace("fc1", "body.0").replace("fc2", "body.2").replace("bn", "norm"): value
        for name, value in state_of_pytorch().items()
    }
    names = {"net/fc1": "body.0", "net/fc2": "body.2", "net/bn": "norm"}
    z, _ = begun(options(model=small_net, weights_names=names), weights=state)
    np.testing.assert_array_equal(z["net/fc2/kernel"], state["body.2.weight"].T)
    own = {name.replace("net/", "other/"): value for name, value in z.items()}
    other, _ = begun(options(model=small_net, weights_names="net=other"), weights=own)
    assert same_bits(other, z)


@pytest.mark.parametrize(
    ("change", "given", "said"),
    [
        ({"fc1.bias": None}, {}, r"variable net/fc1/bias \[4\]: no entry fits, expected \[4\] in PyTorch"),
        ({"fc3.bias": np.ones(3, np.float32)}, {}, r"entry fc3\.bias \[3\]: no variable takes it"),
        (
            {"fc1.weight": np.ones((5, 784), np.float32)},
            {},
            r"variable net/fc1/kernel \[784, 4\]: expected \[4, 784\] in PyTorch, got fc1\.weight \[5, 784\]",
        ),
        ({}, {"weights_skip": "fc4*"}, r"'fc4\*' is to be left out: nothing has such a name"),
        ({}, {"weights_names": "net/fc4=fc1"}, r"'fc1' for 'net/fc4': no variable or scope has this name"),
    ],
)
def test_weights_of_pytorch_that_do_not_fit_are_refused(
    options: Options, change: dict[str, Any], given: dict[str, Any], said: str
) -> None:
    state = {name: value for name, value in {**state_of_pytorch(), **change}.items() if value is not None}
    message = rf"^weights: the given state: .*{said}.*\. Leave weights out by weights_skip \(as fc\.\*\)"
    with pytest.raises(InvalidArgumentError, match=message):
        begun(options(model=small_net, **given), weights=state)


def uneven_net(inputs: Any, labels: Any, training: bool) -> Any:
    """A network whose convolution has a padding that PyTorch lacks, before flattened pictures."""
    with tb.variable_scope("net", reuse=tb.AUTO_REUSE):
        hidden = tb.layers.conv2d(inputs, 2, 5, strides=4, padding="same", name="conv")
        logits = tb.layers.dense(tb.layers.flatten(hidden), 10, name="fc")
    return tb.reduce_mean(
        tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    ), logits


def state_of_uneven_net() -> dict[str, Array]:
    shapes = {"conv.weight": (2, 1, 5, 5), "conv.bias": (2,), "fc.weight": (10, 98), "fc.bias": (10,)}
    return {name: np.random.default_rng(1).normal(size=shape) for name, shape in shapes.items()}


def test_what_differs_from_pytorch_is_said(
    tmp_path: Path, options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of the dense layer in another order in a line, the padding as a warning; not of own weights."""
    with tb.fit(
        uneven_net,
        "synthetic",
        weights=state_of_uneven_net(),
        epochs=1,
        output=tmp_path / "run",
        progress=False,
    ) as fitted:
        file = tb.interop.torch.save_weights(tmp_path / "own.safetensors", fitted.model.session)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith('weights: the given state: padding "same" of net/conv (windows 5x5')
    _, lines = begun(options(model=uneven_net), weights=state_of_uneven_net())
    said = "rows of net/fc/kernel (images 7x7x2) reordered, as PyTorch flattens with channels first"
    assert f"weights: the given state: taken by 4 variables; {said}" in lines
    caplog.clear()
    for weights in (tmp_path / "run", file):
        begun(options(model=uneven_net, weights=weights))
    assert not caplog.records


def joined_net(inputs: Any, labels: Any, training: bool) -> Any:
    """A network whose flattened pictures are joined with another feature."""
    rows = tb.layers.flatten(tb.layers.conv2d(inputs, 2, 7, strides=7, name="conv"))
    rows = tb.concat([rows, tb.reduce_mean(inputs, [1, 2])], 1)
    logits = tb.layers.dense(rows, 10, name="fc")
    return tb.reduce_mean(
        tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    ), logits


def test_the_order_of_flattened_features_is_an_option(options: Options) -> None:
    shapes = {"conv.weight": (2, 1, 7, 7), "conv.bias": (2,), "fc.weight": (10, 33), "fc.bias": (10,)}
    state = {name: np.random.default_rng(1).normal(size=shape) for name, shape in shapes.items()}
    message = r"fc/kernel .* is not known; give it by weights_flattened, as fc/kernel=7x7x64, .*=1x1x33 for"
    with pytest.raises(InvalidArgumentError, match=message):
        begun(options(model=joined_net), weights=state)
    theirs = state["fc.weight"].astype(np.float32)
    z, _ = begun(options(model=joined_net, weights_flattened="fc/kernel=1x1x33"), weights=state)
    np.testing.assert_array_equal(z["fc/kernel"], theirs.T)
    given = {"fc/kernel": (1, 11, 3)}
    z, lines = begun(options(model=joined_net, weights_flattened=given), weights=state)
    np.testing.assert_array_equal(z["fc/kernel"].reshape(11, 3, 10), theirs.reshape(10, 3, 11).T)
    assert any("rows of fc/kernel (images 1x11x3) reordered" in line for line in lines)
    config = options(model="logreg", weights="w", weights_flattened=given)
    assert TrainingConfig.from_dict(config.to_dict()).weights_flattened == (("fc/kernel", (1, 11, 3)),)


@pytest.mark.parametrize(
    ("rename", "advice"),
    [
        (lambda name: name.replace("net/", "body/"), "The names begin otherwise; give net=body by weights_n"),
        (lambda name: f"x/{name}", "The names begin otherwise; give net=x/net by weights_names"),
        (
            lambda name: name.removeprefix("net/"),
            "The names begin otherwise; give net/fc1=fc1,net/bn=bn,net/fc2=fc2 by weights_names",
        ),
        (
            lambda name: f"{name[-3:]}/{name[-2:]}/x/{len(name)}",
            "Is it another model's? If not, give ",
        ),
    ],
)
def test_weights_of_which_no_name_fits_are_told_by_their_names(
    options: Options, rename: Callable[[str], str], advice: str
) -> None:
    """The advice works, where there is one."""
    z, _ = begun(options(model=small_net))
    given = {rename(name): value for name, value in z.items()}
    with pytest.raises(InvalidArgumentError) as caught:
        begun(options(model=small_net), weights=given)
    message = str(caught.value)
    assert "none of the model's 8 variables is there: expected net/fc1/kernel [784, 4], " in message
    assert " and 5 more; got " in message
    assert advice in message
    assert "weights_skip" not in message
    if "; give " in message:
        names = message.partition("; give ")[2].partition(" by ")[0]
        found, _ = begun(options(model=small_net, weights_names=names), weights=given)
        assert same_bits(found, z)


def test_weights_of_pytorch_of_which_no_name_fits(options: Options) -> None:
    state = {f"blocks.{n}.attn.qkv": np.ones((n + 3, 2), np.float32) for n in range(5)}
    with pytest.raises(InvalidArgumentError) as caught:
        begun(options(model=small_net), weights=state)
    message = str(caught.value)
    assert "no name is like one of the model's, and none of its 8 variables can be found" in message
    assert "got blocks.0.attn.qkv [3, 2], " in message
    assert "give weights_names" in message
    assert "weights_skip" not in message


def test_values_that_do_not_fit_are_refused(tmp_path: Path, options: Options) -> None:
    """Of this library: by the names of variables, slots of an optimiser aside."""
    good = {"weights": np.ones((784, 10), np.float32), "biases": np.ones(10, np.float32)}
    z, _ = begun(options(), weights={**good, "weights/Momentum": good["weights"]})
    assert same_bits(z, good)
    for change, said in [
        ({"biases": np.ones(9, np.float32)}, r"variable biases: expected \[10\], got \[9\]"),
        ({"x/y": np.ones(2)}, r"x/y \[2\]: the model has no such variable"),
        ({"weights": None}, r"variable weights \[784, 10\]: there is no weights"),
    ]:
        state = {name: value for name, value in {**good, **change}.items() if value is not None}
        with pytest.raises(InvalidArgumentError, match=rf"^weights: the given state: .*{said}"):
            begun(options(), weights=state)
    with Trainer(options(output=tmp_path / "run", epochs=1)) as trainer:
        trainer.train()
    (checkpoint, *_) = sorted((tmp_path / "run").glob("checkpoint*"))
    with pytest.raises(InvalidArgumentError, match=r"expected a model, got .*, a checkpoint; give its run's"):
        begun(options(weights=checkpoint))
    (tmp_path / "w.txt").write_text("no weights")
    with pytest.raises(DataLossError, match=r"w\.txt is no safetensors file"):
        begun(options(weights=tmp_path / "w.txt"))
    with pytest.raises(NotFoundError, match="holds no trained model"):
        begun(options(weights=tmp_path))


def test_the_names_of_pytorch_are_kept_for_the_way_back(tmp_path: Path, options: Options) -> None:
    """In the run's model, an export, a resumed run, and one that begins with the run's weights."""
    names = {"net/fc1": "body.0", "net/fc2": "body.2", "net/bn": "norm"}
    state = {
        name.replace("fc1", "body.0").replace("fc2", "body.2").replace("bn", "norm"): value
        for name, value in state_of_pytorch().items()
    }
    common = {"model": small_net, "output": tmp_path / "run"}
    with Trainer(options(**common, epochs=1, weights_names=names), weights=state) as trainer:
        trainer.train()
    with Trainer(options(**common, epochs=2, resume="auto")) as trainer:
        trainer.train()
    with Trainer(
        options(model=small_net, epochs=1, output=tmp_path / "next", weights=tmp_path / "run")
    ) as own:
        own.train()
    with TrainedModel(tmp_path / "run") as trained:
        trained.export(tmp_path / "export")
    for path in ("run", "export", "next"):
        with TrainedModel(tmp_path / path) as trained:
            assert tb.interop.torch.state_of(trained.session).keys() == state.keys()


def test_fit_takes_a_state_and_a_path(tmp_path: Path) -> None:
    state = state_of_pytorch()
    file = tmp_path / "w.safetensors"
    save_file(state, file)
    common = {"epochs": 1, "learning_rate": 1e-30, "progress": False, "momentum": 0.0}
    for weights in (state, file, str(file)):
        with tb.fit(small_net, "synthetic", weights=weights, **common) as fitted:
            np.testing.assert_array_equal(fitted.values["net/fc2/kernel"], state["fc2.weight"].T)
    npz = tmp_path / "d.npz"
    np.savez(npz, x=np.zeros((40, 3), np.float32), y=np.arange(40) % 4)
    with tb.fit("logreg", npz, output=tmp_path / "run", **common):
        assert (tmp_path / "run" / MODEL).exists()
    with pytest.raises(InvalidArgumentError, match="weights: expected a path, got 3"):
        tb.fit(small_net, "synthetic", weights=3, **common)
