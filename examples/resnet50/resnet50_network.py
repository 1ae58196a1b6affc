"""ResNet-50 v1 (He et al., 2015, table 1), its loss and its learning rates, written for one device.

The set-up is that of TF-Replicator's image classification (2019, section 5.1), after Goyal et al. (2017): the
3x3 convolution of a stage's first block has the stage's stride, the last gamma of each block starts at 0,
batch normalisation uses the statistics of the replica's own batch, weight decay leaves out gammas, betas and
biases, and the learning rate rises linearly before it drops three times. Labels are smoothed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tensorbow as tb

CLASSES = 1000
PARAMETERS = 25_557_032  # trainable, for 1000 classes
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))  # blocks, and channels of their 3x3 convolutions
EXPANSION = 4  # output channels of a block for each channel of its 3x3 convolution

MOMENTUM, WEIGHT_DECAY, LABEL_SMOOTHING = 0.9, 1e-4, 0.1
PICTURES = 1_281_167  # of ImageNet's training set: an epoch
WARM_UP_EPOCHS = 6
DROPS = {30: 0.1, 60: 0.01, 80: 0.001}  # factor of the learning rate from an epoch on


def logits_of(
    images: tb.Tensor,
    training: bool,
    classes: int = CLASSES,
    on_stage: Callable[[str, tb.Tensor], object] | None = None,
) -> tb.Tensor:
    """Logits `[batch, classes]` from float32 images `[batch, height, width, 3]`.

    training: normalise by the batch's statistics instead of the moving averages. on_stage: called with name
    and output of each stage.
    """

    def passed(name: str, tensor: tb.Tensor) -> tb.Tensor:
        if on_stage is not None:
            on_stage(name, tensor)
        return tensor

    with tb.variable_scope("conv1"):
        hidden = passed("conv1", tb.nn.relu(_normalised(_convolved(images, 64, 7, 2), training)))
    hidden = passed("pool1", tb.layers.max_pooling2d(hidden, 3, 2, padding="same"))
    for stage, (blocks, channels) in enumerate(STAGES, start=2):
        for block in range(1, blocks + 1):
            stride = 2 if stage > 2 and block == 1 else 1
            with tb.variable_scope(f"stage{stage}_block{block}"):
                hidden = _block(hidden, channels, stride, training)
        passed(f"stage{stage}", hidden)
    pooled = passed("pool5", tb.reduce_mean(hidden, [1, 2]))
    return tb.layers.dense(pooled, classes, kernel_initializer="glorot_uniform", name="fc")


def loss_of(logits: tb.Tensor, labels: tb.Tensor, smoothing: float = LABEL_SMOOTHING) -> tb.Tensor:
    """Mean cross-entropy, a float32 scalar, from logits `[batch, classes]` and int64 labels `[batch]`.

    smoothing: probability that the targets spread evenly over all classes (Szegedy et al., 2016, section 7).
    """
    classes = logits.shape.as_list()[1]
    rest = smoothing / classes
    targets = tb.one_hot(labels, classes, on_value=1.0 - smoothing + rest, off_value=rest)
    return tb.reduce_mean(tb.nn.softmax_cross_entropy_with_logits(labels=targets, logits=logits))


def learning_rates(
    rate: float, images_per_step: int, warm_up_epochs: float = WARM_UP_EPOCHS
) -> tb.train.WarmUp:
    """Schedule that rises linearly to `rate` in the first epochs, and has its DROPS later."""
    steps = [epoch * PICTURES // images_per_step - 1 for epoch in DROPS]
    drops = tb.train.PiecewiseConstant(steps, [rate, *(rate * factor for factor in DROPS.values())])
    return tb.train.WarmUp(drops, max(1, int(warm_up_epochs * PICTURES / images_per_step)))


def _block(inputs: tb.Tensor, channels: int, stride: int, training: bool) -> tb.Tensor:
    """Bottleneck: convolutions of 1x1, 3x3 and 1x1, beside a shortcut, projected where the shape changes."""
    width = EXPANSION * channels
    with tb.variable_scope("conv1"):
        hidden = tb.nn.relu(_normalised(_convolved(inputs, channels, 1), training))
    with tb.variable_scope("conv2"):
        hidden = tb.nn.relu(_normalised(_convolved(hidden, channels, 3, stride), training))
    with tb.variable_scope("conv3"):
        hidden = _normalised(_convolved(hidden, width, 1), training, gamma="zeros")
    if inputs.shape.as_list()[-1] != width:
        with tb.variable_scope("projection"):
            inputs = _normalised(_convolved(inputs, width, 1, stride), training)
    return tb.nn.relu(hidden + inputs)


_convolved = partial(
    tb.layers.conv2d, padding="same", use_bias=False, kernel_initializer="he_normal", name="conv"
)


def _normalised(images: tb.Tensor, training: bool, gamma: str = "ones") -> tb.Tensor:
    return tb.layers.batch_normalization(
        images, momentum=0.9, epsilon=1e-5, gamma_initializer=gamma, training=training, name="norm"
    )
