"""`tb.manip`: shapes and positions, under the names that TensorFlow has in `tf.manip`."""

from tensorbow.ops.arrays import reshape
from tensorbow.ops.nd_indexing import gather_nd, scatter_nd
from tensorbow.ops.positions import roll
from tensorbow.ops.shaping import reverse, tile
from tensorbow.ops.spatial_blocks import batch_to_space_nd, space_to_batch_nd

__all__ = [
    "batch_to_space_nd",
    "gather_nd",
    "reshape",
    "reverse",
    "roll",
    "scatter_nd",
    "space_to_batch_nd",
    "tile",
]
