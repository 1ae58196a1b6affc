"""The example of a GAN: its parts against NumPy, and its step for one and for several replicas."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tensorbow as tb
from examples.conditional_gan import networks, quality
from examples.conditional_gan.__main__ import main, replicator_of
from examples.conditional_gan.networks import NOISE, spectral_norm
from examples.conditional_gan.training import ConditionalGan, balanced_samples, batches

pytestmark = pytest.mark.usefixtures("graph")

BATCH = 16
SPREADS = [(1, ["/cpu:0"]), (2, ["/cpu:0"]), (4, ["/cpu:0", "/cpu:1"])]


@pytest.fixture(scope="module")
def pictures():
    return tb.data.load("digits")[0]


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Networks of a quarter of the width."""
    for name in ("generator", "discriminator"):
        monkeypatch.setattr(getattr(networks, name), "__defaults__", (8,))


def test_power_iterations_converge_to_the_largest_singular_value():
    start = np.random.default_rng(0).normal(size=(3, 3, 4, 6)).astype(np.float32)
    tb.set_random_seed(0)
    normal = spectral_norm(tb.Variable(start, name="w").value(), iterate=True)
    matrix = start.reshape(-1, 6)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        estimates = [start.flat[0] / session.run(normal).flat[0] for _ in range(60)]
    largest = np.linalg.svd(matrix, compute_uv=False)[0]
    assert estimates[0] < 0.99 * largest
    np.testing.assert_allclose(estimates[-1], largest, rtol=1e-4)


def test_without_iterating_the_vector_stays_and_the_gradient_takes_it_as_constant():
    start = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    weight, u = tb.Variable(start, name="w"), np.array([[1, 0, 0]], np.float32)
    with tb.variable_scope("norm"):
        normal = spectral_norm(weight.value(), iterate=False)
    (vector,) = tb.global_variables("norm/u")

    (gradient,) = tb.gradients(tb.reduce_sum(normal), [weight])
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        session.load_variables({vector.op.name: u})
        result, gradient, after = session.run([normal, gradient, vector])
    left = u @ start.T / np.linalg.norm(u @ start.T)
    right = left @ start / np.linalg.norm(left @ start)
    largest = (left @ start @ right.T).item()
    np.testing.assert_array_equal(after, u)
    np.testing.assert_allclose(result, start / largest, rtol=1e-5)
    expected = 1 / largest - start.sum() / largest**2 * (left.T @ right)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


def trained(pictures, replicas, devices, steps=5):
    """Losses [steps, 2] and all values of the central model."""
    with tb.Graph().as_default():
        gan = ConditionalGan(replicator_of(replicas, devices), (1e-4, 1e-4))
        inputs = batches(pictures, BATCH, seed=0)
        results = gan.replicator.train(gan.step_fn, lambda: inputs, steps, tb.PER_WORKER)
        return np.mean(list(results), 2), gan.replicator.central_values()


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["reference", pytest.param("default", marks=pytest.mark.slow)])
def test_replicas_with_parts_of_the_batch_agree_with_one_that_has_the_whole(pictures, kernels, request):
    if kernels == "reference":  # which need not be compiled
        request.getfixturevalue("reference_kernels")
    (losses, values), *others = (trained(pictures, *spread) for spread in SPREADS)
    assert np.ptp(losses, 0).min() > 0.1
    for other, more in others:
        np.testing.assert_allclose(other, losses, rtol=1e-4, atol=1e-4)
        for name, value in values.items():
            np.testing.assert_allclose(more[name], value, rtol=1e-4, atol=1e-4, err_msg=name)


def test_the_generators_update_sees_the_updated_discriminator(pictures, reference_kernels):
    """Its loss is that of the fakes under the discriminator as it is after the step."""
    gan = ConditionalGan(tb.NonReplicator(), (0.01, 1e-9))  # the generator stays
    batch = next(batches(pictures, BATCH, seed=0))
    (step,) = gan.replicator.train(gan.step_fn, lambda: iter([batch]), 1, tb.PER_WORKER)
    _, labels, noise = batch
    with tb.Graph().as_default(), tb.Session() as session:
        fakes = networks.generator(noise, labels, training=True)
        loss = -tb.reduce_mean(networks.discriminator(fakes, labels, iterate=False))
        session.run(tb.global_variables_initializer())
        before = {v.op.name: session.run(v) for v in tb.global_variables()}
        session.load_variables({name: gan.replicator.central_values()[name] for name in before})
        expected = session.run(loss)
    np.testing.assert_allclose(np.mean(step[1]), expected, rtol=1e-4)


def test_frechet_distance_of_normal_distributions():
    """Commuting covariances: |m1 - m2|^2 plus the squared difference of the standard deviations."""
    rng = np.random.default_rng(0)
    white = rng.normal(size=(500, 4))
    white -= white.mean(0)
    white = np.linalg.solve(np.linalg.cholesky(np.cov(white, rowvar=False)), white.T).T
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    deviations = np.array([[1.0, 2.0, 0.5, 0.0], [3.0, 1.0, 0.5, 1.0]])  # one direction without variance
    means = rng.normal(size=(2, 4))
    first, second = (white * s @ turn + mean for s, mean in zip(deviations, means, strict=True))
    expected = np.sum((means[0] - means[1]) ** 2) + np.sum((deviations[0] - deviations[1]) ** 2)
    np.testing.assert_allclose(quality.frechet_distance(first, second), expected, rtol=1e-6)
    np.testing.assert_allclose(quality.frechet_distance(second, first), expected, rtol=1e-6)
    assert abs(quality.frechet_distance(first, first)) < 1e-6


def test_samples_are_balanced_and_epochs_shuffled(pictures):
    noise, labels = balanced_samples(30)
    assert noise.shape == (30, NOISE)
    assert np.bincount(labels).tolist() == [3] * 10
    several = batches(pictures, 700, seed=0)
    seen = [next(several)[1] for _ in range(4)]
    assert not np.array_equal(np.sort(seen[0]), np.sort(seen[2]))
    images, _, noise = next(several)
    assert images.min() == -1
    assert images.max() == 1
    assert noise.shape == (700, NOISE)
    with pytest.raises(ValueError, match="a batch size of at most 1437, the examples, got 1438"):
        next(batches(pictures, 1438, seed=0))


@pytest.mark.slow
def test_the_program(tmp_path, capsys, reference_kernels):
    options = "--replicas 1 4 --steps 4 --sample-every 2 --samples 100 --batch-size 16 --classifier-steps 30"
    history = main([*options.split(), "--devices", "/cpu:0", "/cpu:1", "--output", str(tmp_path)])
    assert {file.name for file in tmp_path.iterdir()} == {"scores.json", "samples.png", "curves.png"}
    stored = json.loads((tmp_path / "scores.json").read_text())
    assert [point["step"] for point in stored["4"]] == [1, 2, 4]
    assert stored["4"] == history[4]
    for one, other in zip(history[1], history[4], strict=True):
        np.testing.assert_allclose(other["frechet"], one["frechet"], rtol=0.02)
    assert capsys.readouterr().out.count("replicas, step") == 6


@pytest.mark.slow
def test_samples_improve_with_training(tmp_path, monkeypatch):
    """From chance to a majority of samples that the classifier takes for their class (see the README)."""
    for name in ("generator", "discriminator"):
        monkeypatch.setattr(getattr(networks, name), "__defaults__", (32,))
    options = "--replicas 2 --steps 400 --sample-every 400 --samples 500 --classifier-steps 300"
    first, last = main([*options.split(), "--output", str(tmp_path)])[2]
    assert first["accuracy"] < 0.2
    assert last["accuracy"] > 0.5
    assert last["frechet"] < first["frechet"] / 10
