"""Alternating updates of discriminator and generator, in one step that any number of replicas runs."""

from __future__ import annotations

import numpy as np

import tensorbow as tb
from examples.conditional_gan.networks import CLASSES, NOISE, discriminator, generator


class ConditionalGan:
    """A spectrally normalised class-conditional GAN (TF-Replicator, 2019, section 6), trained by replicas.

    replicator: a `tb.NonReplicator`, or a `tb.MultiGpuReplicator` with `sync="ssgd"`, so that all replicas
    update with the mean of their gradients.
    """

    def __init__(self, replicator, learning_rates=(2e-3, 2e-3), seed=0):
        """learning_rates: of discriminator and generator. Adam's betas are those of Zhang et al. (2018)."""
        self.replicator = replicator
        with replicator.context():
            tb.set_random_seed(seed)
            self._discriminator_optimizer, self._generator_optimizer = (
                replicator.wrap_optimizer(tb.train.AdamOptimizer(rate, beta1=0.0, beta2=0.9))
                for rate in learning_rates
            )

    def step_fn(self, images, labels, noise):
        """One update of the discriminator, then one of the generator; returns both losses.

        images: float32 [batch, 28, 28, 1] in -1..1; labels: int64 [batch], of the real and the generated
        images; noise: float32 [batch, NOISE].
        """
        fakes = generator(noise, labels, training=True)
        both = tb.concat([images, tb.stop_gradient(fakes)], 0)
        real, fake = tb.split(discriminator(both, tb.concat([labels, labels], 0), iterate=True), 2)
        discriminator_loss = tb.reduce_mean(tb.nn.relu(1.0 - real)) + tb.reduce_mean(tb.nn.relu(1.0 + fake))
        update = self._discriminator_optimizer.minimize(
            discriminator_loss, var_list=tb.trainable_variables("discriminator/")
        )
        with tb.control_dependencies([update]):  # what reads the discriminator here finds it updated
            generator_loss = -tb.reduce_mean(discriminator(fakes, labels, iterate=False))
        with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
            update = self._generator_optimizer.minimize(
                generator_loss, var_list=tb.trainable_variables("generator/")
            )
        with tb.control_dependencies([update]):
            return tb.identity(discriminator_loss), tb.identity(generator_loss)

    def train(self, dataset, batch_size, steps, sample_every, samples, seed=0):
        """Trains; yields (step, mean losses, images) at the first, every `sample_every`-th and the last step.

        dataset: a `tb.data.ImageDataset` of 28x28x1. batch_size: of all replicas together. samples: (noise,
        labels) of the images [n, 28, 28, 1] that the generator makes then; n is divisible by the replicas.
        """
        global_batches = batches(dataset, batch_size, seed)
        losses = self.replicator.run(self.step_fn, lambda: global_batches, tb.PER_WORKER)
        images = self.replicator.run(
            lambda noise, labels: generator(noise, labels, training=False), lambda: samples, tb.PER_WORKER
        )
        mean_losses = [tb.reduce_mean(loss) for loss in losses]
        with self.replicator, tb.Session() as session:
            self.replicator.init(session)
            recent = []
            for step in range(1, steps + 1):
                recent.append(session.run(mean_losses))
                if step == 1 or step % sample_every == 0 or step == steps:
                    made = session.run(images)  # [replicas, n / replicas, 28, 28, 1]
                    yield step, np.mean(recent, 0), made.reshape(-1, 28, 28, 1)
                    recent.clear()


def batches(dataset, batch_size, seed):
    """Endless (images, labels, noise) for `ConditionalGan.step_fn`, shuffled anew in each epoch."""
    if batch_size > len(dataset):
        raise tb.errors.InvalidArgumentError(
            f"expected a batch size of at most {len(dataset)}, the examples, got {batch_size}"
        )
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(dataset))
        for first in range(0, len(order) - batch_size + 1, batch_size):
            rows = order[first : first + batch_size]
            yield scaled(dataset.images[rows]), dataset.labels[rows], normal(rng, batch_size)


def scaled(pixels):
    """Pixels uint8 as float32 in -1..1."""
    return pixels.astype(np.float32) / 127.5 - 1


def normal(rng, count):
    """Noise float32 [count, NOISE]."""
    return rng.standard_normal((count, NOISE), np.float32)


def balanced_samples(count, seed=0):
    """(noise, labels) of `count` images to generate: the classes in turn."""
    return normal(np.random.default_rng(seed), count), np.arange(count) % CLASSES
