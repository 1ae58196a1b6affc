"""A TensorFlow 1 program, trained by one model and then by four replicas: only the session differs.

python examples/change_the_session.py
"""

import numpy as np

import tensorbow as tf  # the names are those of TensorFlow 1

digits, test = tf.data.load("digits")
tf.set_random_seed(0)
x = tf.placeholder(tf.float32, [None, 28, 28, 1])
y = tf.placeholder(tf.int64, [None])
hidden = tf.layers.conv2d(x, 16, 5, strides=2, padding="same", activation=tf.nn.relu)
hidden = tf.layers.dense(tf.layers.flatten(hidden), 64, activation=tf.nn.relu)
logits = tf.layers.dense(hidden, 10)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
train_op = tf.train.MomentumOptimizer(0.02, 0.9).minimize(loss)


def train(session: tf.Session, batch_size: int, steps: int = 120) -> float:
    """Trains with batches of `batch_size` in all; returns the accuracy on the test set."""
    rng = np.random.default_rng(0)
    session.run(tf.global_variables_initializer())
    for _ in range(steps):
        images, labels = digits.batch(rng.integers(0, len(digits), batch_size))
        session.run(train_op, {x: images, y: labels})
    images, labels = test.batch()
    return float(session.run(accuracy, {x: images, y: labels}))


with tf.Session() as session:
    print(f"accuracy of one model: {train(session, 16):.3f}")
with tf.Session(target="tensorbow", replicas_per_device=4) as session:
    print(f"accuracy of four averaged replicas: {train(session, 4 * 16):.3f}")
