"""Character-level language model of LSTMs, after Karpathy's char-rnn (2015): two layers of 128 units."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from tensorbow import layers
from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, Fraction, Positive, checked, one_of
from tensorbow.layers.rnn import dynamic_rnn
from tensorbow.layers.rnn_cells import GRUCell, LSTMCell, MultiRNNCell, RNNCell
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, token_steps

Cell: TypeAlias = Annotated[Literal["lstm", "gru"], one_of("lstm", "gru")]
CELLS: dict[str, type[LSTMCell] | type[GRUCell]] = {"lstm": LSTMCell, "gru": GRUCell}


class CharacterRNN(Model):
    """Recurrent layers over the embedded symbols of a sequence; predicts the next symbol at each step."""

    name = "char-rnn"
    defaults = Defaults(dataset="text", learning_rate=3e-3, epochs=5, optimizer="adam", schedule="cosine")

    @checked
    def __init__(
        self,
        units: Positive = 128,
        depth: Positive = 2,
        cell: Cell = "lstm",
        embedding: Positive = 64,
        dropout: Fraction = 0.0,
    ):
        """units: of each of the layers, `depth` in number. embedding: width of a symbol's vector.

        dropout: between the layers, in training.
        """
        self.units, self.depth, self.cell, self.embedding = units, depth, cell, embedding
        self.dropout = dropout

    @checked
    def logits(self, tokens: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, steps, classes], of the next symbol, from whole numbers [batch, steps]."""
        token_steps(tokens)
        hidden = layers.embedding(tokens, classes, self.embedding, name="symbols")
        cells: list[RNNCell] = [CELLS[self.cell](self.units) for _ in range(self.depth)]
        hidden, _ = dynamic_rnn(MultiRNNCell(cells), hidden)
        hidden = layers.dropout(hidden, self.dropout, training=training)
        return layers.dense(hidden, classes, name="fc")
