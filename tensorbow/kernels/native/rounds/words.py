"""Words (64-bit numbers in arrays) through which a round program and its native code communicate.

A "function of base addresses" is native code whose only argument is the array of the regions' base addresses.

- `SharedWord`: one array.
- `ThreadWord`: one per thread.
- `ReplicaWord`: one per replica and launch, followed by a `RowWord` row per round.
"""

from __future__ import annotations

from enum import IntEnum

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, POINTER, index

LINE = 8  # words of a cache line: what one thread writes and others wait for has lines of its own


class SharedWord(IntEnum):
    """Words shared by all replicas of a round program."""

    COUNT = 0  # replicas
    BASES = 1  # array of each replica's array of base addresses
    DEVICES = 2  # how many
    CENTRAL = 3  # array of each device's array of base addresses, those of z's work
    FIRST = 4  # array of each device's first replica, and the number of all
    FUNCTIONS = 5  # array of addresses of functions of base addresses
    VARIANTS = 6  # array of (first phase, end of the phases), one row for each variant of a round
    PHASES = 7  # array of `PhaseWord`s, one row for each phase
    INPUTS = 8  # how many
    INPUT_TABLE = 9  # of (offset in INPUT, bytes)
    FETCHES = 10  # how many
    FETCH_TABLE = 11  # of (region, offset, offset in RING, bytes)
    STATE_NBYTES = 12
    STATUS = 13  # its offset in STATE
    CONTROL = 14  # `WorkerExchange.control`, or 0 without other workers
    CONTROL_CALL = 15  # array: the native call that sums its first number
    SUMS = 16  # this worker's sums, which become those of all
    FIRST_REPLICA = 17  # number of the first replica among those of all workers
    WORKERS = 18  # how many,
    WORKER = 19  # and the number of this one
    WORKER_SUMS = 20  # array of each worker's sums, where workers share memory,
    WORKER_FLAGS = 21  # of their flags: for each block, a line with the number of the last exchange,
    WORKER_THREADS = 22  # and of the words with the threads of their launch
    CHECKS = 23  # array: how many there are, and the words of each `IndexCheck`
    ARRIVED = 3 * LINE  # threads that have come to a meeting, all meetings counted
    STOPPED = 4 * LINE  # no replica goes on
    BAD = 5 * LINE  # a replica's status is set, which ends the rounds
    NOT_FINITE = 5 * LINE + 1  # the MEETING of the last mean of gradients that was not finite
    STARTED = 6 * LINE  # twice the last launch that a thread has begun, and 1 if that is the last of all
    WORDS = 7 * LINE


class PhaseWord(IntEnum):
    """Words of one phase: calls up to an exchange, or to the end of the round, and that exchange."""

    FIRST = 0  # number in FUNCTIONS of the first one that each replica calls,
    END = 1  # and the end of these
    PASS = 2  # function of a thread's words: its part of the exchange, or 0 at the end of the round
    DEVICE = 3  # number in FUNCTIONS of what each device does behind the pass, or -1
    CALLS = 4  # array of native calls between workers, behind the pass,
    CALL_COUNT = 5  # and how many there are
    USES = (
        6  # function of a thread's words: its part of what is left to do behind these, or 0 if they are none
    )
    ENDS = 7  # its `PhaseWord`s: the exchange that ends before this pass, where exchanges end later, or 0,
    POST = 8  # native call that begins to exchange the sums,
    WAIT = 9  # and the one that waits for the end
    UNDER_WAY = 10  # MEETING of the exchange that has begun, 0 if none has; by the code
    PIECES = 11  # of the sums, of each of which CALLS has the one that begins and the one that waits, or 0
    WORDS = 12


class ThreadWord(IntEnum):
    """Words of one call: some rounds of the replicas of a thread."""

    SHARED = 0
    COUNT = 1  # its replicas
    REPLICAS = 2  # array of their `ReplicaWord`s
    NUMBER = 3  # of the thread
    THREADS = 4  # in all
    ROUNDS = 5  # of the launch
    ARRIVALS = 6  # of threads at meetings before this call
    STOPS = 7  # a `Stops`
    LAUNCH_NUMBER = 8
    AT = 9  # the replica, by its number among the thread's, whose call refused its input; by the code
    MEETING = 10  # arrivals at the meeting before the pass: no other has that number; by the code
    TIMES = 11  # array of `TimesWord`s, one row for each exchange of the launch, or 0
    TIMED = 12  # rows that are filled, by the code
    PIECE = 13  # number of the one that a pass is for; by the code
    ALL = 14  # array of the `ReplicaWord`s of all threads' replicas
    WORDS = 15


class TimesWord(IntEnum):
    """Times of an exchange in a thread, in seconds and nanoseconds of the monotonic clock."""

    ARRIVED = 0  # this thread
    ALL_ARRIVED = 2
    ENDED = 4
    WORDS = 6


class ReplicaWord(IntEnum):
    """Words of one replica in one launch."""

    BASES = 0
    ROWS = 1
    ROW_WORDS = 2
    BATCH = 3  # function of base addresses that makes a batch, where rounds have picks,
    BATCH_BASES = 4  # and its array of base addresses
    DONE = 5  # rounds done, by the code
    REFUSED = 6  # the call that refused its input, by the code,
    REFUSED_BY = 7  # and the number of its function in FUNCTIONS, or OF_BATCH or OF_CHECK
    WORDS = 8


OF_BATCH = -1  # REFUSED_BY: BATCH has refused
OF_CHECK = -2  # REFUSED_BY: REFUSED is the number of a check


class RowWord(IntEnum):
    """Words of one round of a replica."""

    VARIANT = 0  # number of the variant that it runs
    RING = 1  # offset of what it fetches in RING
    PICKS = 2  # of its batch, or 0
    STATE = 3  # where the step scalars are that it begins with
    SOURCES = 4  # of its inputs, where there are no picks


class Stops(IntEnum):
    """Effect of a status that is set on the rounds behind."""

    ENDS = -1  # they end for all replicas
    NEVER = 0  # none: each round begins with the status that it is given
    STICKY = 1  # this replica does nothing in them


class CallResult(IntEnum):
    """Result of a call of the driver."""

    ALL_DONE = -1  # or as many rounds as a status that is set allows
    INPUT_REFUSED = 0  # by a call of this thread
    OTHERS_FAILED = 1  # so this thread stopped
    NOT_BEGUN = 2  # since an earlier launch was the last
    WORKER_FAILED = 3  # so this one stopped
    CALL_FAILED = 4  # a call between workers


def load_word(builder: ir.IRBuilder, words: ir.Value, number: int | ir.Value) -> ir.Value:
    """A word as a number."""
    return builder.load(word_at(builder, words, number), typ=INT, align=8)


def load_pointer(builder: ir.IRBuilder, words: ir.Value, number: int | ir.Value) -> ir.Value:
    """A word as an address."""
    return builder.load(word_at(builder, words, number), typ=POINTER, align=8)


def word_at(builder: ir.IRBuilder, words: ir.Value, number: int | ir.Value) -> ir.Value:
    """The address of a word."""
    position = index(int(number)) if isinstance(number, int) else number
    return builder.gep(words, [position], source_etype=INT)


def bytes_on(builder: ir.IRBuilder, pointer: ir.Value, nbytes: int | ir.Value) -> ir.Value:
    """The address so many bytes on."""
    offset = index(nbytes) if isinstance(nbytes, int) else nbytes
    return builder.gep(pointer, [offset], source_etype=ir.IntType(8))


def copy_bytes(builder: ir.IRBuilder, target: ir.Value, source: ir.Value, nbytes: ir.Value) -> None:
    """Copies bytes that do not overlap."""
    bit, module = ir.IntType(1), builder.module
    kind = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, INT, bit])
    name = "llvm.memcpy.p0.p0.i64"
    function = module.globals.get(name) or ir.Function(module, kind, name)
    builder.call(function, [target, source, nbytes, ir.Constant(bit, 0)])
