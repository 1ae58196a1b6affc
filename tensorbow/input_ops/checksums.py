"""CRC-32C (Castagnoli), as files of records have it: long data in lanes, computed side by side by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tensorbow.specs import Array

_POLYNOMIAL = 0x82F63B78  # reflected
_LANE = 64  # bytes of a lane
_MOST_LANES = 4096
_LEAST_NBYTES = 4096  # of data for which lanes are faster than Python's loop
_ONES = 0xFFFFFFFF


def _first_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _first_table()


@lru_cache(maxsize=1)
def _word_tables() -> Array:
    """Tables [4, 256]: what each byte of a word of four bytes, the last one first, adds to the checksum."""
    tables = [np.array(_TABLE, np.uint32)]
    for _ in range(3):
        tables.append(tables[0][tables[-1] & 0xFF] ^ tables[-1] >> 8)
    return np.stack(tables)


@lru_cache(maxsize=40)
def _zeros_tables(exponent: int) -> Array:
    """Tables [4, 256], by byte of a checksum: the checksum after 2^exponent zero bytes more."""
    basis = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if exponent == 0:
        columns = _word_tables()[0][basis & 0xFF] ^ basis >> 8
    else:
        half = _zeros_tables(exponent - 1)
        columns = _looked_up(half, _looked_up(half, basis))
    tables = np.zeros((4, 256), np.uint32)
    for bit in range(8):
        chosen = (np.arange(256) >> bit & 1).astype(bool)
        for byte in range(4):
            tables[byte, chosen] ^= columns[8 * byte + bit]
    return tables


def _looked_up(tables: Array, values: Array) -> Array:
    found: Array = tables[0][values & 0xFF]
    for byte in range(1, 4):
        found = found ^ tables[byte][values >> 8 * byte & 0xFF]
    return found


def _of_lanes(data: bytes | memoryview, lanes: int) -> int:
    """The checksum of `lanes` (a power of two) times 64 bytes."""
    words = np.ascontiguousarray(np.frombuffer(data, "<u4").reshape(lanes, _LANE // 4).T)
    tables = _word_tables()
    state = np.full(lanes, _ONES, np.uint32)
    for column in words:
        state = _looked_up(tables[::-1], state ^ column)
    checksums = state ^ np.uint32(_ONES)
    exponent = _LANE.bit_length() - 1
    while len(checksums) > 1:
        checksums = _looked_up(_zeros_tables(exponent), checksums[0::2]) ^ checksums[1::2]
        exponent += 1
    return int(checksums[0])


@lru_cache(maxsize=1)
def _compiled() -> Callable[[bytes], int] | None:
    """The function of google-crc32c (extra `records`), or None where it is not installed."""
    try:
        from google_crc32c import value
    except ImportError:
        return None
    function: Callable[[bytes], int] = value
    return function


def crc32c(data: bytes) -> int:
    """The CRC-32C of bytes."""
    compiled = _compiled()
    return crc32c_by_numpy(data) if compiled is None else compiled(data)


def crc32c_by_numpy(data: bytes) -> int:
    """`crc32c` without compiled code."""
    total, start = 0, 0
    while len(data) - start >= _LEAST_NBYTES:
        lanes = min(_MOST_LANES, 1 << ((len(data) - start) // _LANE).bit_length() - 1)
        size = lanes * _LANE
        part = _of_lanes(memoryview(data)[start : start + size], lanes)
        moved = _looked_up(_zeros_tables(size.bit_length() - 1), np.array([total], np.uint32))
        total = int(moved[0]) ^ part
        start += size
    total ^= _ONES
    table = _TABLE
    for byte in memoryview(data)[start:]:
        total = table[(total ^ byte) & 0xFF] ^ total >> 8
    return total ^ _ONES


def masked_crc32c(data: bytes) -> int:
    """CRC-32C as it stands in records: rotated and shifted, for data that contain checksums themselves."""
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & _ONES
