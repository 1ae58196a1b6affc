"""`tb.image`: ops on images under TensorFlow's names."""

from tensorbow.input_ops import jpeg_headers, picture_ops
from tensorbow.input_ops.jpeg_headers import *
from tensorbow.input_ops.picture_ops import *
from tensorbow.ops import (
    box_choices,
    glimpses,
    image_boxes,
    image_colors,
    image_edges,
    image_geometry,
    image_similarity,
    resizing,
)
from tensorbow.ops.box_choices import *
from tensorbow.ops.glimpses import *
from tensorbow.ops.image_boxes import *
from tensorbow.ops.image_colors import *
from tensorbow.ops.image_edges import *
from tensorbow.ops.image_geometry import *
from tensorbow.ops.image_similarity import *
from tensorbow.ops.patches import extract_image_patches
from tensorbow.ops.resizing import *

__all__ = ["extract_image_patches"]
__all__ += box_choices.__all__
__all__ += glimpses.__all__
__all__ += image_boxes.__all__
__all__ += image_colors.__all__
__all__ += image_edges.__all__
__all__ += image_geometry.__all__
__all__ += image_similarity.__all__
__all__ += resizing.__all__
__all__ += picture_ops.__all__
__all__ += jpeg_headers.__all__
