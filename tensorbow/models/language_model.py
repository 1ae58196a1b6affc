"""Language model of LSTMs over a large vocabulary: LSTM-512-512 (TensorFlow, OSDI 2016, section 6.4).

The embedding of the words and the weights of the softmax, with a row for each word, are the largest
variables. They can be cut into parts along the words, so that each part, with its products and gradients, is
on a device of its own (section 4.2).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeAlias

from tensorbow import layers
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, colocate_with
from tensorbow.initializers import constant as constant_initializer
from tensorbow.kinds import Flag, Fraction, Positive, checked, one_of, shown
from tensorbow.layers.rnn import dynamic_rnn
from tensorbow.layers.rnn_cells import LSTMCell, MultiRNNCell
from tensorbow.models.model import AsTensor, Classes, Defaults, MixedLabels, Model, token_steps
from tensorbow.models.model_outputs import ModelOutputs
from tensorbow.ops.arrays import concat, reshape
from tensorbow.ops.candidate_samplers import log_uniform_candidate_sampler
from tensorbow.ops.candidate_sampling import nce_loss, sampled_softmax_loss
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import bias_add, embedding_lookup
from tensorbow.ops.reductions import reduce_mean
from tensorbow.ops.selection import cast
from tensorbow.partitioned_variables import PartitionedVariable, fixed_size_partitioner
from tensorbow.specs import int64
from tensorbow.variable_scope import get_variable

Loss: TypeAlias = Annotated[Literal["full", "sampled", "nce"], one_of("full", "sampled", "nce")]


class LSTMLanguageModel(Model):
    """LSTM layers over the embedded words of a sequence; predicts the next word at each step.

    Trained by the softmax over all words, or by a sample of them: sampled softmax (Jean et al., 2014), or
    noise-contrastive estimation (Gutmann and Hyvärinen, 2010). It is evaluated by the softmax over all.
    """

    name = "lstm-lm"
    defaults = Defaults(dataset="words", learning_rate=2e-3, epochs=5, optimizer="adam", schedule="cosine")

    @checked
    def __init__(
        self,
        units: Positive = 512,
        depth: Positive = 2,
        dropout: Fraction = 0.0,
        softmax: Loss = "full",
        num_sampled: Positive = 512,
        shards: Positive = 1,
    ):
        """units: of each of the layers, `depth` in number, and width of a word's vector.

        dropout: of the last layer's outputs, in training. softmax: full, sampled or nce, in training.
        num_sampled: words drawn for a batch, by the latter two. shards: parts of the embedding and of the
        softmax's weights.
        """
        self.units, self.depth, self.dropout = units, depth, dropout
        self.softmax, self.num_sampled, self.shards = softmax, num_sampled, shards

    @checked
    def logits(self, tokens: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, steps, classes], of the next word, from whole numbers [batch, steps]."""
        hidden = self._hidden(tokens, classes, training)
        flat = self._full(hidden, *self._softmax_variables(classes))
        return reshape(flat, [-1, token_steps(tokens), classes])

    @checked
    def __call__(
        self,
        inputs: Any,
        labels: Any,
        training: Flag = False,
        classes: Classes | None = None,
        class_weights: Any = None,
        label_smoothing: Fraction = 0.0,
        label_scale: Any = None,
        mixed_labels: MixedLabels | None = None,
    ) -> ModelOutputs:
        """The model's loss, outputs and metrics, as those of every `tb.models.Model`.

        In training with a sample of the words there are no logits of all, and so neither outputs nor
        metrics. Raises InvalidArgumentError for class weights, label smoothing and mixup then.
        """
        if not training or self.softmax == "full":
            further = {
                "class_weights": class_weights,
                "label_smoothing": label_smoothing,
                "mixed_labels": mixed_labels,
            }
            return super().__call__(inputs, labels, training, classes, **further, label_scale=label_scale)
        weighted = {"class_weights": class_weights, "mixed_labels": mixed_labels}
        given = [name for name, value in weighted.items() if value is not None]
        given += ["label_smoothing"] if label_smoothing else []
        if given:
            raise InvalidArgumentError(
                f"{self.name}: expected no {' and no '.join(given)} with softmax={self.softmax}, which has "
                "no probabilities of all words; leave out what is given, or train with softmax=full"
            )
        if classes is None or not isinstance(inputs, Tensor) or not isinstance(labels, Tensor):
            got = f"inputs {shown(inputs)}, labels {shown(labels)} and classes {shown(classes)}"
            raise InvalidArgumentError(
                f"{self.name}: expected sequences of words [batch, steps] as inputs, the words that follow "
                f"as labels, and classes, the size of the vocabulary; got {got}"
            )
        return ModelOutputs(reduce_mean(self._sampled_losses(inputs, labels, classes)))

    def _sampled_losses(self, tokens: Tensor, labels: Tensor, classes: int) -> Tensor:
        """Losses [batch * steps] over a sample of the words. labels: the next words, [batch, steps]."""
        hidden = self._hidden(tokens, classes, True)
        weights, biases = self._softmax_variables(classes)
        following = reshape(cast(labels, int64), [-1, 1])
        loss = sampled_softmax_loss if self.softmax == "sampled" else nce_loss
        count = min(self.num_sampled, classes)
        # Independent draws are computed where the step is; different words would be drawn on a CPU.
        sampled = log_uniform_candidate_sampler(following, 1, count, False, classes)
        losses: Tensor = loss(
            weights,
            biases,
            following,
            hidden,
            count,
            classes,
            sampled_values=sampled,
            remove_accidental_hits=self.softmax == "sampled",
            partition_strategy="div",
        )
        return losses

    def _hidden(self, tokens: Tensor, classes: int, training: bool) -> Tensor:
        """The last layer's outputs [batch * steps, units]."""
        token_steps(tokens)
        words = self._table("words/embedding", classes)
        hidden = embedding_lookup(words, tokens, "div")
        cells = [LSTMCell(self.units) for _ in range(self.depth)]
        hidden, _ = dynamic_rnn(MultiRNNCell(cells), hidden)
        hidden = layers.dropout(hidden, self.dropout, training=training)
        return reshape(hidden, [-1, self.units])

    def _table(self, name: str, classes: int) -> Any:
        """A variable with a row for each word, in `shards` parts."""
        partitioner = fixed_size_partitioner(self.shards) if self.shards > 1 else None
        shape = [classes, self.units]
        return get_variable(name, shape, initializer="random_uniform", partitioner=partitioner)

    def _softmax_variables(self, classes: int) -> tuple[Any, Any]:
        """Weights and biases. All words begin with a score of log(1 / classes), as normalised scores have:
        noise-contrastive estimation does not normalise them, and rarely sees rare words.
        """
        start = constant_initializer(-math.log(classes))
        biases = get_variable("softmax/biases", [classes], initializer=start)
        return self._table("softmax/weights", classes), biases

    def _full(self, hidden: Tensor, weights: Any, biases: Any) -> Tensor:
        """Logits of all words [batch * steps, classes]; the product of each part is where the part is."""
        parts = weights.parts if isinstance(weights, PartitionedVariable) else (weights,)
        products = []
        for part in parts:
            with colocate_with(part):
                products.append(matmul(hidden, part, transpose_b=True))
        return bias_add(concat(products, 1) if len(products) > 1 else products[0], biases)
