"""What joint rounds tell their native code, and it them: arrays of 64-bit words, by number.

One array is shared by all replicas, one is of each launch of a replica, and one row of each of its steps,
behind it. What changes from launch to launch lies together.
"""

from __future__ import annotations

from enum import IntEnum

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, POINTER, index

LINE = 8  # words of a cache line: what one thread writes and others wait for has lines of its own


class SharedWord(IntEnum):
    """Of all replicas of a device."""

    COUNT = 0  # replicas
    BASES = 1  # array of each replica's array of base addresses
    CENTRAL = 2  # z's base addresses
    GRADIENT = 3  # functions of base addresses: the gradient segment,
    UPDATE = 4  # the update without averaging,
    BEFORE = 5  # what comes before the pass over all replicas' weights,
    AFTER = 6  # and after it
    PASS = 7  # the function of a launch's words that does this replica's part of the pass
    INPUTS = 8  # how many
    INPUT_TABLE = 9  # of (offset in INPUT, bytes)
    FETCHES = 10  # how many
    FETCH_TABLE = 11  # of (region, offset, offset in RING, bytes)
    STATE_NBYTES = 12
    STATUS = 13  # its offset in STATE
    ARRIVED = 2 * LINE  # replicas that have come to a meeting, all meetings counted
    STOPPED = 3 * LINE  # no replica goes on
    BAD = 4 * LINE  # a replica's status is set
    WORDS = 5 * LINE


class LaunchWord(IntEnum):
    """Of one call: some steps of one replica."""

    SHARED = 0
    BASES = 1
    INDEX = 2  # of the replica
    STEPS = 3
    ROWS = 4
    ROW_WORDS = 5
    MAKE = 6  # the function that makes a batch, or 0
    EXAMPLES = 7  # its words; the first is where the picks are
    MEETINGS = 8  # of all replicas before this call
    STOPS = 9  # -1 where a status that is set ends the steps, or 0
    DONE = 10  # steps done, by the code
    REFUSED = 11  # the call that refused its input, by the code
    REFUSED_BY = 12  # and the function it is of, as a word of `SharedWord`
    WORDS = 13


class RoundsWord(IntEnum):
    """Of one call that does the launches of all replicas."""

    COUNT = 0  # replicas
    LAUNCHES = 1  # array of their launches' words
    AT = 2  # the replica whose call refused its input, by the code
    WORDS = 3


class RowWord(IntEnum):
    """Of one step."""

    AVERAGES = 0  # whether averaging follows
    RING = 1  # offset of what it fetches in RING
    PICKS = 2  # of its batch, or 0
    STATE = 3  # where the step scalars are that it begins with
    SOURCES = 4  # of its inputs, where there are no picks


# What a call returns: all done, or as far as a status that is set lets it; input refused; stopped by others.
DONE, REFUSED, STOPPED = -1, 0, 1


def load_word(builder: ir.IRBuilder, words: ir.Value, number: int | ir.Value) -> ir.Value:
    """A word as a number."""
    return builder.load(word_at(builder, words, number), typ=INT, align=8)


def load_pointer(builder: ir.IRBuilder, words: ir.Value, number: int | ir.Value) -> ir.Value:
    """A word as an address."""
    return builder.load(word_at(builder, words, number), typ=POINTER, align=8)


def word_at(builder: ir.IRBuilder, words: ir.Value, number: int | ir.Value) -> ir.Value:
    """The address of a word."""
    place = index(int(number)) if isinstance(number, int) else number
    return builder.gep(words, [place], source_etype=INT)


def bytes_on(builder: ir.IRBuilder, pointer: ir.Value, nbytes: int | ir.Value) -> ir.Value:
    """The address so many bytes on."""
    place = index(nbytes) if isinstance(nbytes, int) else nbytes
    return builder.gep(pointer, [place], source_etype=ir.IntType(8))
