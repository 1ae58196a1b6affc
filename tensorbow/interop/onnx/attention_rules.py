"""Rule for ONNX's Attention (opset 23), of two products and a softmax."""

from __future__ import annotations

import numpy as np

from tensorbow.errors import UnimplementedError
from tensorbow.graph import Tensor
from tensorbow.interop.onnx.graph_builder import GraphBuilder, rule
from tensorbow.interop.onnx.held_values import Held
from tensorbow.interop.onnx.model_file import OnnxNode
from tensorbow.ops.arrays import reshape, transpose
from tensorbow.ops.elementwise import add, divide, multiply, tanh
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import softmax
from tensorbow.ops.selection import select
from tensorbow.specs import bool_

LOWEST = float(np.finfo(np.float32).min)


@rule("Attention")
def _attention(
    b: GraphBuilder, node: OnnxNode, q: Held, k: Held, v: Held, mask: Held | None = None, *more: Held | None
) -> Held:
    if len(node.outputs) > 1 or any(held is not None for held in more):
        raise UnimplementedError("past keys and values, lengths and further outputs are not supported")
    heads = node.attrs.get("q_num_heads"), node.attrs.get("kv_num_heads")
    query = _in_heads(b, q, heads[0])
    keys, values = (_in_heads(b, held, heads[1]) for held in (k, v))
    count, shared = (tensor.spec.dims[1] for tensor in (query, keys))
    if count != shared:
        raise UnimplementedError(f"{count} heads of queries share {shared} of keys: expected as many")
    width = query.spec.dims[-1]
    scale = node.attrs.get("scale") or 1 / np.sqrt(width or 1)
    scores = multiply(matmul(query, keys, transpose_b=True), float(scale))
    cap = node.attrs.get("softcap", 0.0)
    if cap:
        scores = multiply(tanh(divide(scores, cap)), cap)
    if mask is not None:
        given = b.tensor(mask)
        scores = select(given, scores, LOWEST) if given.dtype == bool_ else add(scores, given)
    if node.attrs.get("is_causal"):
        rows, columns = scores.spec.dims[-2:]
        if rows is None or columns is None:
            raise UnimplementedError("is_causal: the lengths of the sequences must be known")
        scores = select(np.tri(rows, columns, dtype=bool), scores, LOWEST)
    result = matmul(softmax(scores), values)
    if q.rank == 4:
        return Held(None, result)
    _, own, length, size = result.spec.dims
    if own is None or length is None or size is None:
        raise UnimplementedError("the length of the sequences and the width of a head must be known")
    return Held(None, reshape(transpose(result, [0, 2, 1, 3]), [-1, length, own * size]))


def _in_heads(b: GraphBuilder, held: Held, heads: int | None) -> Tensor:
    """Queries, keys or values as [batch, heads, length, width]."""
    if held.rank == 4:
        return b.tensor(held)
    _, length, width = held.dims
    if length is None or width is None or not heads:
        raise UnimplementedError(
            f"expected [batch, length, heads * width] of a known length, got {held.dims}"
        )
    return transpose(reshape(b.tensor(held), [-1, length, heads, width // heads]), [0, 2, 1, 3])
