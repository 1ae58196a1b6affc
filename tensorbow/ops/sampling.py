"""Reference kernels of the random ops: definition of the numbers made from Philox words.

Every element can be computed alone, so all backends give the same numbers:

- the key is `stream_key(graph's seed, op's seed, replica)`, the counter (block, attempt, step);
- element e comes from block e // n, from its words from 4 (e mod n) / n on: n = 4 elements
  per block for float32 and dropout, n = 2 for float64 and integers, which take two words (high, low);
- a uniform float32 is the upper 24 bits of a word / 2**24, a float64 the upper 53 of two words / 2**53;
- an integer is minval + (64 bits) mod (maxval - minval);
- normals come from pairs of uniforms u, v (Box and Muller 1958): r cos(2 pi v) and r sin(2 pi v) with
  r = sqrt(-2 log(1 - u)), in the arithmetic of the dtype;
- a truncated normal beyond 2 is drawn again with the next attempt in the counter, and clamped after
  `ATTEMPTS` attempts (of 5 * 10**10 numbers, one);
- a permutation of n sorts the positions i by 64 random bits (as for integers), whose lowest bits, as many
  as n - 1 has, are replaced by i;
- dropout keeps an element if its uniform (24 bits of a word, for any dtype) is at least the rate; a
  rate that is not in [0, 1) gives NaN, which the check of the loss finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Kernel, KernelCall, NodeSpec
from tensorbow.ops.array_views import as_vector
from tensorbow.ops.philox import PhiloxBlocks, stream_key
from tensorbow.specs import Array, DType, TensorSpec, bool_, float32, int64

BLOCKS = 1 << 12  # blocks drawn at a time, so that the words stay in the cache
ATTEMPTS = 8
TRUNCATION = 2.0  # standard deviations

Words = tuple[Array, Array, Array, Array]
Draw = Callable[[int, int, int], Array]  # (first block, blocks, step) -> numbers [elements per block, blocks]


def _lanes(dtype: DType | np.dtype[np.generic]) -> int:
    """Floating elements per block."""
    return 4 if dtype == float32 else 2


def _scratch(output: TensorSpec, lanes: int, drawn: Sequence[DType]) -> list[TensorSpec]:
    """Three buffers of the generator, then one [lanes, blocks] for each of `drawn`."""
    blocks = min(BLOCKS, -(-output.size // lanes))
    return [TensorSpec((2, blocks), int64)] * 3 + [TensorSpec((lanes, blocks), dtype) for dtype in drawn]


def _blocks(call: KernelCall) -> PhiloxBlocks:
    even, odd, product = (array.view(np.uint64) for array in call.scratch[:3])
    return PhiloxBlocks.over(even, odd, product)


def _sampler(call: KernelCall, blocks: PhiloxBlocks, lanes: int, draw: Draw) -> Callable[[], None]:
    """The step: draws blocks piece by piece and stores their numbers in the order of elements."""
    elements = as_vector(call.outputs[0])
    seeds, state = (int(call.attrs["seed"]), int(call.attrs["seed2"])), call.state

    def step() -> None:
        blocks.set_key(stream_key(*seeds, int(state["random_stream"])))
        for first in range(0, elements.size, BLOCKS * lanes):
            part = elements[first : first + BLOCKS * lanes]
            whole, rest = divmod(part.size, lanes)
            drawn = draw(first // lanes, whole + bool(rest), int(state["counter"]))
            np.copyto(part[: whole * lanes].reshape(whole, lanes), drawn[:, :whole].T, casting="unsafe")
            if rest:
                np.copyto(part[whole * lanes :], drawn[:rest, whole], casting="unsafe")

    return step


# Uniform numbers ----------------------------------------------------------------------------------


def fill_uniforms(words: Words, numbers: Array) -> None:
    """Writes uniforms in [0, 1) to `numbers` [4 of float32 or 2 of float64, blocks]; overwrites words."""
    if numbers.dtype == np.float32:
        for word, lane in zip(words, numbers, strict=True):
            np.right_shift(word, 8, out=word)
            np.multiply(word, 2.0**-24, out=lane, casting="same_kind")
    else:
        for wide, lane in zip(_join(words), numbers, strict=True):
            np.right_shift(wide, 11, out=wide)
            np.multiply(wide, 2.0**-53, out=lane)


def _join(words: Words) -> tuple[Array, Array]:
    """Two 64-bit numbers from four words, in place."""
    for high, low in (words[:2], words[2:]):
        np.left_shift(high, 32, out=high)
        np.bitwise_or(high, low, out=high)
    return words[0], words[2]


def _prepare_uniform(call: KernelCall) -> Callable[[], None]:
    blocks, numbers = _blocks(call), call.scratch[3]

    def draw(first: int, count: int, step: int) -> Array:
        fill_uniforms(blocks.fill(first, count, 0, step), numbers[:, :count])
        return numbers[:, :count]

    return _sampler(call, blocks, len(numbers), draw)


def require_range(low: int, high: int) -> None:
    """Raises InvalidArgumentError if [low, high) contains no integer."""
    if low >= high:
        raise InvalidArgumentError(f"random_uniform: minval {low} must be less than maxval {high}")


def _prepare_integers(call: KernelCall) -> Callable[[], None]:
    _, low, high = call.inputs
    blocks, numbers = _blocks(call), call.scratch[3]

    def draw(first: int, count: int, step: int) -> Array:
        offset, extent = np.uint64(int(low) % 2**64), np.uint64(int(high) - int(low))
        for wide, lane in zip(_join(blocks.fill(first, count, 0, step)), numbers, strict=True):
            np.remainder(wide, extent, out=wide)
            np.add(wide, offset, out=lane[:count].view(np.uint64))  # modulo 2**64: also for a negative minval
        return numbers[:, :count]

    sample = _sampler(call, blocks, len(numbers), draw)

    def step() -> None:
        require_range(int(low), int(high))  # even if no number is drawn
        sample()

    return step


def _prepare_permutation(call: KernelCall) -> Callable[[], None]:
    """Sorts random keys whose low bits are the position; the sorted keys' low bits are the permutation."""
    (order,), blocks, keys = call.outputs, _blocks(call), call.scratch[3].view(np.uint64)
    positions, low = np.arange(keys.size, dtype=np.uint64), np.uint64((1 << (keys.size - 1).bit_length()) - 1)
    seeds, state = (int(call.attrs["seed"]), int(call.attrs["seed2"])), call.state

    def step() -> None:
        blocks.set_key(stream_key(*seeds, int(state["random_stream"])))
        for first in range(0, keys.size, 2 * BLOCKS):
            part = keys[first : first + 2 * BLOCKS]
            count = -(-part.size // 2)
            even, odd = _join(blocks.fill(first // 2, count, 0, int(state["counter"])))
            np.copyto(part[0::2], even)
            np.copyto(part[1::2], odd[: part.size // 2])
        np.bitwise_and(keys, ~low, out=keys)
        np.bitwise_or(keys, positions, out=keys)
        keys.sort()
        np.bitwise_and(keys, low, out=keys)
        np.copyto(order, keys, casting="unsafe")

    return step if keys.size else lambda: None


def _prepare_mask(call: KernelCall) -> Callable[[], None]:
    _, rate = call.inputs
    blocks, numbers, kept = _blocks(call), call.scratch[3], call.scratch[4]

    def draw(first: int, count: int, step: int) -> Array:
        if not 0 <= float(rate) < 1:
            numbers.fill(math.nan)
            return numbers[:, :count]
        limit, scale = math.ceil(float(rate) * 2**24) << 8, numbers.dtype.type(1 / (1 - float(rate)))
        for word, keep in zip(blocks.fill(first, count, 0, step), kept[:, :count], strict=True):
            np.greater_equal(word, np.uint64(limit), out=keep)  # upper 24 bits / 2**24 >= rate
        np.multiply(kept[:, :count], scale, out=numbers[:, :count])
        return numbers[:, :count]

    return _sampler(call, blocks, len(numbers), draw)


# Normal numbers -----------------------------------------------------------------------------------


def _fill_normals(words: Words, numbers: Array, temporary: Array) -> None:
    """Writes normal numbers to `numbers`, [4 of float32 or 2 of float64, blocks]; overwrites the words."""
    fill_uniforms(words, numbers)
    for pair in range(0, len(numbers), 2):
        radius, angle, cosine = numbers[pair], numbers[pair + 1], temporary[pair]
        np.subtract(1, radius, out=radius)
        np.log(radius, out=radius)
        np.multiply(radius, -2, out=radius)
        np.sqrt(radius, out=radius)
        np.multiply(angle, 2 * math.pi, out=angle)
        np.cos(angle, out=cosine)
        np.sin(angle, out=angle)
        np.multiply(angle, radius, out=angle)
        np.multiply(radius, cosine, out=radius)


def _prepare_normal(call: KernelCall) -> Callable[[], None]:
    blocks, (numbers, temporary) = _blocks(call), call.scratch[3:]

    def draw(first: int, count: int, step: int) -> Array:
        _fill_normals(blocks.fill(first, count, 0, step), numbers[:, :count], temporary[:, :count])
        return numbers[:, :count]

    return _sampler(call, blocks, len(numbers), draw)


def _prepare_truncated_normal(call: KernelCall) -> Callable[[], None]:
    blocks, buffers = _blocks(call), call.scratch[3:]

    def draw(first: int, count: int, step: int) -> Array:
        numbers, temporary, again, outside = (buffer[:, :count] for buffer in buffers)
        _fill_normals(blocks.fill(first, count, 0, step), numbers, temporary)
        for attempt in range(1, ATTEMPTS):
            np.abs(numbers, out=temporary)
            np.greater(temporary, TRUNCATION, out=outside)
            if not outside.any():
                break
            _fill_normals(blocks.fill(first, count, attempt, step), again, temporary)
            np.copyto(numbers, again, where=outside)
        np.clip(numbers, -TRUNCATION, TRUNCATION, out=numbers)
        return numbers

    return _sampler(call, blocks, len(buffers[0]), draw)


def _floating_scratch(drawn: int, masked: bool = False) -> Callable[[NodeSpec], list[TensorSpec]]:
    def scratch(node: NodeSpec) -> list[TensorSpec]:
        (output,) = node.outputs
        return _scratch(output, _lanes(output.dtype), [output.dtype] * drawn + [bool_] * masked)

    return scratch


def _mask_scratch(node: NodeSpec) -> list[TensorSpec]:
    return _scratch(node.outputs[0], 4, [node.outputs[0].dtype, bool_])


def _integer_scratch(node: NodeSpec) -> list[TensorSpec]:
    return _scratch(node.outputs[0], 2, [int64])


def _permutation_scratch(node: NodeSpec) -> list[TensorSpec]:
    return [*_scratch(node.outputs[0], 2, []), TensorSpec((node.outputs[0].size,), int64)]


UNIFORM = Kernel(prepare=_prepare_uniform, scratch=_floating_scratch(1))
NORMAL = Kernel(prepare=_prepare_normal, scratch=_floating_scratch(2))
TRUNCATED_NORMAL = Kernel(prepare=_prepare_truncated_normal, scratch=_floating_scratch(3, masked=True))
INTEGERS = Kernel(prepare=_prepare_integers, scratch=_integer_scratch)
PERMUTATION = Kernel(prepare=_prepare_permutation, scratch=_permutation_scratch)
MASK = Kernel(prepare=_prepare_mask, scratch=_mask_scratch)
