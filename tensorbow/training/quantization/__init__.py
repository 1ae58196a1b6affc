"""Quantised inference: a saved model whose matrix products and convolutions are of 8-bit integers.

`products` finds them in a graph, `calibration` observes the ranges of their operands, `rewriting` builds the
quantised graph, `quantized_model` reads and writes saved models.
"""

from tensorbow.training.quantization.quantized_model import quantize_model

__all__ = ["quantize_model"]
