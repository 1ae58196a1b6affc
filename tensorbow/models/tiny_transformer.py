"""Small language model: a transformer of which each step sees earlier ones only (Radford et al., 2018)."""

from __future__ import annotations

from tensorbow import layers
from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, Fraction, Positive, checked
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, token_steps
from tensorbow.models.transformer_blocks import START, normalised_features, transformer_block
from tensorbow.ops.elementwise import add
from tensorbow.variable_scope import get_variable


class TinyTransformer(Model):
    """Transformer over the symbols of a sequence; predicts the next symbol at each step."""

    name = "transformer-tiny"
    defaults = Defaults(dataset="text", learning_rate=1.5e-3, epochs=5, optimizer="adam", schedule="cosine")

    @checked
    def __init__(
        self, width: Positive = 128, depth: Positive = 4, num_heads: Positive = 4, dropout: Fraction = 0.0
    ):
        """width: features of a symbol. depth: number of blocks."""
        self.width, self.depth, self.num_heads, self.dropout = width, depth, num_heads, dropout

    @checked
    def logits(self, tokens: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, steps, classes], of the next symbol, from whole numbers [batch, steps]."""
        steps = token_steps(tokens)
        symbols = layers.embedding(tokens, classes, self.width, START, name="symbols")
        places = get_variable("positions", [steps, self.width], initializer=START, decayed=False)
        hidden = layers.dropout(add(symbols, places), self.dropout, training=training)
        for number in range(1, self.depth + 1):
            hidden = transformer_block(
                *(hidden, self.num_heads, f"block{number}"),
                causal=True,
                dropout=self.dropout,
                training=training,
            )
        return layers.dense(normalised_features(hidden), classes, kernel_initializer=START, name="fc")
