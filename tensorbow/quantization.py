"""`tb.quantization`: inference with integers of 8 bits, and training for it."""

from typing import TYPE_CHECKING, Any

from tensorbow.missing_names import no_attribute as _no_attribute
from tensorbow.ops.quantization import (
    dequantize,
    fake_quant_with_min_max_args,
    fake_quant_with_min_max_vars,
    fake_quant_with_min_max_vars_per_channel,
    quantize,
)
from tensorbow.ops.quantized_products import quantized_conv2d, quantized_matmul

if TYPE_CHECKING:
    from tensorbow.training.quantization import quantize_model


if not TYPE_CHECKING:  # for which every name would be known

    def __getattr__(name: str) -> Any:
        """`quantize_model`, from an upper layer that is imported on first use."""
        if name != "quantize_model":
            raise _no_attribute(name, __all__, __name__)
        from tensorbow.training.quantization import quantize_model

        return quantize_model


def __dir__() -> list[str]:
    """The public names, including that of the upper layer."""
    return sorted(__all__)


__all__ = [
    "dequantize",
    "fake_quant_with_min_max_args",
    "fake_quant_with_min_max_vars",
    "fake_quant_with_min_max_vars_per_channel",
    "quantize",
    "quantize_model",
    "quantized_conv2d",
    "quantized_matmul",
]
