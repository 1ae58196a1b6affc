"""Loss and learning rates of ResNet-50, written for one device.

The set-up is that of TF-Replicator's image classification (2019, section 5.1), after Goyal et al. (2017):
labels are smoothed, and the learning rate rises linearly before it drops three times. The network,
`tb.models.ImageNetResNet`, normalises by the statistics of the replica's own batch; weight decay leaves out
gammas, betas and biases.
"""

from __future__ import annotations

import tensorbow as tb

CLASSES = 1000
MOMENTUM, WEIGHT_DECAY, LABEL_SMOOTHING = 0.9, 1e-4, 0.1
PICTURES = 1_281_167  # of ImageNet's training set: an epoch
WARM_UP_EPOCHS = 6
DROPS = {30: 0.1, 60: 0.01, 80: 0.001}  # factor of the learning rate from an epoch on


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
