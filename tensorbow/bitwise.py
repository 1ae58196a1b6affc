"""`tb.bitwise`: functions of the bits of whole numbers, under TensorFlow's names."""

from tensorbow.ops.bitwise import bitwise_and, bitwise_or, bitwise_xor, invert, left_shift, right_shift

__all__ = [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "invert",
    "left_shift",
    "right_shift",
]
