"""Multi-head attention."""

from __future__ import annotations

from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import Flag, Name, Positive, checked
from tensorbow.layers.building import Rate, known_extent, layer_scope
from tensorbow.layers.core import dense
from tensorbow.ops.arrays import reshape, transpose
from tensorbow.ops.attention import scaled_dot_product_attention
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.slicing import strided_slice
from tensorbow.variable_scope import Reuse, Start

__all__ = ["multi_head_attention"]


@checked
def multi_head_attention(
    query: Any,
    num_heads: Positive,
    value: Any = None,
    key: Any = None,
    *,
    key_dim: Positive | None = None,
    value_dim: Positive | None = None,
    output_dim: Positive | None = None,
    mask: Any = None,
    causal: Flag = False,
    dropout: Rate = 0.0,
    training: Flag = False,
    use_bias: Flag = True,
    kernel_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Attention with several heads (Vaswani et al., 2017, section 3.2.2): `[batch, queries, output_dim]`.

    query `[batch, queries, features]`; value and key `[batch, keys, features]`, by default query and value:
    self-attention. key_dim and value_dim: width of a head, by default features / num_heads and key_dim;
    output_dim: by default the query's features. mask: bool, broadcasts to `[batch, heads, queries, keys]`;
    True lets a query see a key. `causal` hides later steps. dropout: of the attention weights, in training.

    Variables: kernel and bias of the dense layers `query`, `key`, `value` and `output`. Raises
    InvalidArgumentError for inputs that are not of rank 3, unknown features, and, without key_dim, features
    that num_heads does not divide.
    """
    asking = convert_to_tensor(query)
    with asking.graph.as_default(), layer_scope(name, "multi_head_attention", reuse):
        told = asking if value is None else convert_to_tensor(value)
        matched = told if key is None else convert_to_tensor(key)
        for tensor in (asking, told, matched):
            if tensor.shape.ndims != 3:
                raise InvalidArgumentError(
                    f"multi_head_attention: expected [batch, steps, features], got {tensor.spec}"
                )
        features = known_extent("multi_head_attention", asking, -1)
        if key_dim is None and features % num_heads:
            raise InvalidArgumentError(
                f"multi_head_attention: expected num_heads that divide {features} features, got {num_heads}; "
                "or give key_dim"
            )
        depth = key_dim or features // num_heads
        width = value_dim or depth

        def projected(tensor: Tensor, units: int, label: str) -> Tensor:
            return dense(
                tensor,
                units,
                None,
                use_bias,
                kernel_initializer,
                bias_initializer,
                trainable=trainable,
                name=label,
            )

        def heads(tensor: Tensor, each: int, label: str) -> Tensor:
            """[batch, heads, steps, each]."""
            joined = projected(tensor, num_heads * each, label)
            return transpose(reshape(joined, [*_leading(tensor), num_heads, each]), (0, 2, 1, 3))

        mixed = scaled_dot_product_attention(
            heads(asking, depth, "query"),
            heads(matched, depth, "key"),
            heads(told, width, "value"),
            mask,
            causal,
            dropout if training else 0.0,
        )
        together = reshape(transpose(mixed, (0, 2, 1, 3)), [*_leading(asking), num_heads * width])
        return projected(together, output_dim or features, "output")


def _leading(tensor: Tensor) -> list[Any]:
    """Batch and steps, as extents of a reshape; at most one of them is inferred."""
    batch, steps = tensor.spec.dims[:2]
    if steps is None:
        return [-1 if batch is None else batch, strided_slice(shape(tensor), 1)]
    return [-1 if batch is None else batch, steps]
