"""64-bit hashes of bytes, the same on every machine and in every version: Fingerprint64 and SipHash."""

from __future__ import annotations

import hashlib

_MASK = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def digest64(data: bytes) -> int:
    """The first 8 bytes of BLAKE2b, little-endian."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


# FarmHash -----------------------------------------------------------------------------------------


def _rotated(value: int, by: int) -> int:
    """Rotation to the right of 64 bits."""
    value &= _MASK
    return (value >> by | value << (64 - by)) & _MASK


def _mixed(value: int) -> int:
    value &= _MASK
    return value ^ value >> 47


def _joined(u: int, v: int, factor: int) -> int:
    a = _mixed(((u ^ v) & _MASK) * factor)
    b = _mixed((v & _MASK ^ a) * factor)
    return b * factor & _MASK


def fingerprint64(data: bytes) -> int:
    """FarmHash's Fingerprint64, as in TensorFlow's string_to_hash_bucket_fast."""
    size = len(data)

    def word(at: int) -> int:
        return int.from_bytes(data[at : at + 8], "little")

    if size > 64:
        return _of_blocks(data)
    factor = _K2 + size * 2
    if size > 16:
        a, b = word(0) * (_K1 if size <= 32 else _K2), word(8)
        c, d = word(size - 8) * factor, word(size - 16) * _K2
        y = _rotated(a + b, 43) + _rotated(c, 30) + d
        z = _joined(y, a + _rotated(b + _K2, 18) + c, factor)
        if size <= 32:
            return z
        e, f = word(16) * factor, word(24)
        g, h = (y + word(size - 32)) * factor, (z + word(size - 24)) * factor
        return _joined(_rotated(e + f, 43) + _rotated(g, 30) + h, e + _rotated(f + a, 18) + g, factor)
    if size >= 8:
        a, b = word(0) + _K2, word(size - 8)
        c = _rotated(b, 37) * factor + a
        return _joined(c, (_rotated(a, 25) + b) * factor, factor)
    if size >= 4:
        first, last = (int.from_bytes(data[at : at + 4], "little") for at in (0, size - 4))
        return _joined(size + (first << 3), last, factor)
    if size:
        y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
        return _mixed(y * _K2 & _MASK ^ z * _K0 & _MASK) * _K2 & _MASK
    return _K2


def _of_blocks(data: bytes) -> int:
    """Fingerprint64 of more than 64 bytes."""

    def word(at: int) -> int:
        return int.from_bytes(data[at : at + 8], "little")

    def absorbed(at: int, a: int, b: int) -> tuple[int, int]:
        first, last = word(at), word(at + 24)
        a += first
        b = _rotated(b + a + last, 21)
        c = a
        a += word(at + 8) + word(at + 16)
        b += _rotated(a, 44)
        return (a + last) & _MASK, (b + c) & _MASK

    seed, rest = 81, (len(data) - 1) & 63
    y = (seed * _K1 + 113) & _MASK
    x, z = seed * _K2 + word(0), _mixed(y * _K2 + 113) * _K2 & _MASK
    v = w = (0, 0)

    def turned(at: int, factor: int, times: int) -> None:
        nonlocal x, y, z, v, w
        x = _rotated(x + y + v[0] + word(at + 8), 37) * factor & _MASK
        y = _rotated(y + v[1] + word(at + 48), 42) * factor & _MASK
        x ^= w[1] * times & _MASK
        y += v[0] * times + word(at + 40)
        z = _rotated(z + w[0], 33) * factor
        v = absorbed(at, v[1] * factor, x + w[0])
        w = absorbed(at + 32, z + w[1], y + word(at + 16))
        z, x = x, z & _MASK

    end = (len(data) - 1) // 64 * 64
    for at in range(0, end, 64):
        turned(at, _K1, 1)
    factor = _K1 + ((z & 0xFF) << 1)
    w = (w[0] + rest, w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    turned(end + rest - 63, factor, 9)
    left = _joined(v[0], w[0], factor) + _mixed(y) * _K0 + z
    return _joined(left, _joined(v[1], w[1], factor) + x, factor)


# SipHash ------------------------------------------------------------------------------------------


def sip_hash(key: tuple[int, int], data: bytes) -> int:
    """SipHash-2-4 (Aumasson and Bernstein, 2012) by a key of two 64-bit words."""
    k0, k1 = key
    a, b = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    c, d = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(count: int) -> None:
        nonlocal a, b, c, d
        for _ in range(count):
            a, c = (a + b) & _MASK, (c + d) & _MASK
            b, d = _rotated(b, 51) ^ a, _rotated(d, 48) ^ c
            a, c = _rotated(a, 32) + d & _MASK, (c + b) & _MASK
            b, d = _rotated(b, 47) ^ c, _rotated(d, 43) ^ a
            c = _rotated(c, 32)

    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        d ^= word
        rounds(2)
        a ^= word
    c ^= 0xFF
    rounds(4)
    return a ^ b ^ c ^ d
