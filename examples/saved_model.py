"""Train, save the model to a folder, and use it from there without the program that built it.

python examples/saved_model.py [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

import tensorbow as tb


def train(folder: Path) -> None:
    """Trains logistic regression with four replicas and writes graph and weights."""
    digits, _ = tb.data.load("digits")
    with tb.Graph().as_default():
        images = tb.placeholder(tb.float32, [None, 28, 28, 1], name="images")
        labels = tb.placeholder(tb.int64, [None])
        logits = tb.layers.dense(tb.layers.flatten(images), 10)
        loss = tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        update = tb.train.MomentumOptimizer(0.02, 0.9).minimize(loss)
        probabilities = tb.nn.softmax(logits)
        with tb.Session(target="tensorbow", replicas_per_device=4) as session:
            session.run(tb.global_variables_initializer())
            order = tb.data.BatchOrder(len(digits), batch_size=64, seed=0)
            for epoch in range(4):
                for number in range(len(digits) // 64):
                    pictures, numbers = digits.batch(order.indices(epoch=epoch, number=number))
                    session.run(update, {images: pictures, labels: numbers})
            values = {v.op.name: session.run(v) for v in tb.trainable_variables()}
        tb.train.save_model(folder, {"images": images}, {"probabilities": probabilities}, values)


def use(folder: Path) -> float:
    """Accuracy of the saved model; nothing here knows how it was built."""
    _, test = tb.data.load("digits")
    images, labels = test.batch()
    with tb.train.SavedModel(folder) as model:
        (probabilities,) = model.run(["probabilities"], images=images)
    return float((probabilities.argmax(1) == labels).mean())


folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "digits"
train(folder)
print(sorted(path.name for path in folder.iterdir()))
print(f"accuracy of the saved model: {use(folder):.3f}")
