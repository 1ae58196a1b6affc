"""Generator with class-conditional batch norm, and a spectrally normalised projection discriminator."""

from __future__ import annotations

import tensorbow as tb

NOISE = 64  # elements of the generator's input
CLASSES = 10


def conditional_batch_norm(x, labels, training, name):
    """Batch normalisation of `x` [batch, ..., channels] with a scale and an offset of each class.

    labels: int64 [batch] (Dumoulin et al., 2017). In training the statistics are those of the batches of all
    replicas together (TF-Replicator, 2019, section 6).
    """
    channels = int(x.shape[-1])
    with tb.variable_scope(name):
        scale = tb.get_variable("scale", [CLASSES, channels], initializer="ones")
        offset = tb.get_variable("offset", [CLASSES, channels], initializer="zeros")
        normal = tb.layers.batch_normalization(
            x, momentum=0.9, center=False, scale=False, training=training, cross_replica=True, name="norm"
        )
        rows = [-1, *[1] * (x.shape.ndims - 2), channels]
        scales, offsets = (tb.reshape(tb.gather(each, labels), rows) for each in (scale, offset))
        return normal * scales + offsets


def generator(noise, labels, training, width=32):
    """Images [batch, 28, 28, 1] in -1..1 from noise [batch, NOISE] and labels int64 [batch]."""
    with tb.variable_scope("generator", reuse=tb.AUTO_REUSE):
        x = tb.layers.dense(noise, 7 * 7 * 2 * width, name="dense")
        x = tb.reshape(x, [-1, 7, 7, 2 * width])
        x = tb.nn.relu(conditional_batch_norm(x, labels, training, "norm1"))
        x = tb.layers.conv2d_transpose(x, width, 4, 2, "same", use_bias=False, name="up1")  # 14 x 14
        x = tb.nn.relu(conditional_batch_norm(x, labels, training, "norm2"))
        return tb.layers.conv2d_transpose(x, 1, 4, 2, "same", activation=tb.tanh, name="up2")  # 28 x 28


def spectral_norm(weight, iterate):
    """`weight` [..., outputs] divided by the largest singular value of the matrix [rest, outputs].

    The singular value is estimated by one power iteration, which begins with the vector u [1, outputs] that
    the last one left in a variable (Miyato et al., 2018, algorithm 1); no gradient flows through the vectors.
    iterate: whether u is replaced, as in one pass of each training step.
    """
    matrix = tb.reshape(weight, [-1, int(weight.shape[-1])])
    u = tb.get_variable("u", [1, int(weight.shape[-1])], initializer="random_normal", trainable=False)
    fixed = tb.stop_gradient(matrix)
    left = tb.nn.l2_normalize(tb.matmul(u, fixed, transpose_b=True))
    right = tb.nn.l2_normalize(tb.matmul(left, fixed))
    largest = tb.reduce_sum(tb.matmul(left, matrix) * right)
    with tb.control_dependencies([u.assign(right)] if iterate else []):
        return weight / largest


def normalised_weight(name, shape, iterate):
    """A spectrally normalised variable of this name and shape."""
    with tb.variable_scope(name):
        return spectral_norm(tb.get_variable("kernel", shape, initializer="orthogonal").value(), iterate)


def discriminator(images, labels, iterate, width=32):
    """Logits [batch] from images [batch, 28, 28, 1] and labels int64 [batch]; greater means more real.

    The features' inner product with the embedding of the label is added to a linear function of them
    (projection discriminator: Miyato and Koyama, 2018). iterate: see `spectral_norm`.
    """
    with tb.variable_scope("discriminator", reuse=tb.AUTO_REUSE):
        x = images
        for layer, channels in enumerate((width, 2 * width, 4 * width)):  # 14 x 14, 7 x 7, 4 x 4
            kernel = normalised_weight(f"conv{layer}", [4, 4, int(x.shape[-1]), channels], iterate)
            bias = tb.get_variable(f"bias{layer}", [channels], initializer="zeros")
            x = tb.nn.leaky_relu(tb.nn.bias_add(tb.nn.conv2d(x, kernel, 2, "SAME"), bias), 0.1)
        features = tb.reduce_sum(x, [1, 2])
        linear = tb.matmul(features, normalised_weight("linear", [4 * width, 1], iterate))
        embedding = tb.gather(normalised_weight("embedding", [CLASSES, 4 * width], iterate), labels)
        return tb.squeeze(linear, [1]) + tb.reduce_sum(features * embedding, 1)
