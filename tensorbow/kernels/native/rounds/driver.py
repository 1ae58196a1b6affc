"""Some rounds of a thread's replicas in one call: batches made, gradients, exchanges, updates.

The code is the same for all models; it calls the functions of a step by their addresses. A thread does its
replicas in turn, each up to the next exchange, however many rounds that is; there it meets the other threads
before and after the pass over all replicas. A waiting thread spins for a moment, then lets others run. One
thread alone never waits: what replicas hand each other then stays in one core's caches, which for the
smallest models is more than a second core gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from tensorbow.kernels.native.codegen.call_table import ACCEPTED, SIGNATURE
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.rounds.early_checks import CHECK_WORDS
from tensorbow.kernels.native.rounds.pieces import PIECE_LAG
from tensorbow.kernels.native.rounds.system_functions import CLOCK, MONOTONIC, has_clock
from tensorbow.kernels.native.rounds.waiting import barrier_function
from tensorbow.kernels.native.rounds.words import (
    OF_BATCH,
    OF_CHECK,
    CallResult,
    PhaseWord,
    ReplicaWord,
    RowWord,
    SharedWord,
    Stops,
    ThreadWord,
    TimesWord,
    bytes_on,
    copy_bytes,
    load_pointer,
    load_word,
    word_at,
)
from tensorbow.program.plan import Region
from tensorbow.program.rounds import CALL_ARGUMENTS, FAILED_WORKER

ROUNDS = "rounds"


def driver_module(target: Target) -> ir.Module:
    """The function ROUNDS of `ThreadWord`s; it returns a `CallResult`."""
    module = ir.Module("rounds")
    module.triple = target.triple
    _DriverWriter(module, target).write()
    return module


class _DriverWriter:
    """The function in the making, and the replica that it is at."""

    def __init__(self, module: ir.Module, target: Target):
        self._module = module
        function = ir.Function(module, SIGNATURE, ROUNDS)
        self._entry, self._start = (function.append_basic_block(name) for name in ("entry", "start"))
        self._b = ir.IRBuilder(self._start)
        self._thread = function.args[0]
        self._e = Emitter(target, self._b, self._thread)
        entry = ir.IRBuilder(self._entry)
        self._ends = entry.alloca(ir.IntType(1))  # after this round, before all are done
        self._undone = entry.alloca(INT)  # the first round that no replica has begun
        self._accepted = entry.alloca(INT)  # rounds before the first one whose indices are out of range,
        self._refusing = entry.alloca(INT)  # number of the replica to which these are fed,
        self._refused = entry.alloca(INT)  # and of the check
        self._arrivals = entry.alloca(INT)  # of threads at the meetings that this one is through with
        self._barrier = barrier_function(module, target)
        if has_clock():
            int32 = ir.IntType(32)
            self._clock = ir.Function(module, ir.FunctionType(int32, [int32, POINTER]), CLOCK)

    def write(self) -> None:
        """The rounds, one after the other."""
        b = self._b
        self._shared = load_pointer(b, self._thread, ThreadWord.SHARED)
        self._return_if(self._is_set(SharedWord.STOPPED), CallResult.OTHERS_FAILED)
        self._begin_launch()
        b.store(load_word(b, self._thread, ThreadWord.ARRIVALS), self._arrivals)
        b.store(ir.Constant(ir.IntType(1), 0), self._ends)
        b.store(index(0), self._undone)
        asked = load_word(b, self._thread, ThreadWord.ROUNDS)
        b.store(asked, self._accepted)
        self._check_indices(asked)
        rounds = b.load(self._accepted, typ=INT)
        with self._e.loop(rounds) as step:
            begin, end = self._phases_of(step)
            exchanges = b.icmp_signed("<", b.add(begin, index(1)), end)
            is_last = b.icmp_signed("==", b.add(step, index(1)), rounds)
            with b.if_then(b.or_(exchanges, is_last)):
                self._run_up_to(step, begin, end)
        with self._unlikely(b.icmp_signed("<", rounds, asked)):
            self._end_checked()
        b.ret(index(CallResult.ALL_DONE))
        ir.IRBuilder(self._entry).branch(self._start)

    def _check_indices(self, rounds: ir.Value) -> None:
        """Emits the checks of what is fed to all replicas, made by each thread; only the rounds before the
        first one in which a check fails are then done."""
        b, shared = self._b, self._shared
        checks, every = (
            load_pointer(b, *which) for which in ((shared, SharedWord.CHECKS), (self._thread, ThreadWord.ALL))
        )
        row = self._row(load_pointer(b, every, 0), index(0))
        is_fed = b.icmp_signed("==", load_word(b, row, RowWord.PICKS), index(0))
        goes_on = b.icmp_signed("==", load_word(b, self._thread, ThreadWord.STOPS), index(Stops.STICKY))
        count = b.select(b.and_(is_fed, b.not_(goes_on)), load_word(b, checks, 0), index(0))
        with self._e.loop(count) as check, self._e.loop(load_word(b, shared, SharedWord.COUNT)) as replica:
            words = word_at(b, checks, b.add(b.mul(check, index(CHECK_WORDS)), index(1)))
            which, offset, length, nbytes, least, extent = (
                load_word(b, words, n) for n in range(CHECK_WORDS)
            )
            with self._e.loop(b.load(self._accepted, typ=INT)) as step:
                row = self._row(load_pointer(b, every, replica), step)
                source = load_pointer(b, row, b.add(which, index(RowWord.SOURCES)))
                with self._e.loop(length) as at:
                    place = bytes_on(b, source, b.add(offset, b.mul(at, nbytes)))
                    number = b.sub(self._load_index(place, nbytes), least)
                    is_outside = b.icmp_unsigned(">=", number, extent)  # negative ones are huge
                    is_first = b.icmp_signed("<", step, b.load(self._accepted, typ=INT))
                    with self._unlikely(b.and_(is_outside, is_first)):
                        b.store(step, self._accepted)
                        b.store(replica, self._refusing)
                        b.store(check, self._refused)

    def _load_index(self, place: ir.Value, nbytes: ir.Value) -> ir.Value:
        """An integer of 4 or 8 bytes."""
        b = self._b
        with b.if_else(b.icmp_signed("==", nbytes, index(8))) as (wide, narrow):
            with wide:
                long, from_wide = b.load(place, typ=INT, align=1), b.block
            with narrow:
                short, from_narrow = b.sext(b.load(place, typ=ir.IntType(32), align=1), INT), b.block
        number = b.phi(INT)
        number.add_incoming(long, from_wide)
        number.add_incoming(short, from_narrow)
        return number

    def _end_checked(self) -> None:
        """Emits the end of a launch before a round for which an index is out of range: all come to it."""
        b = self._b
        self._wait_for_all()
        self._set(SharedWord.STOPPED)
        every, own = (load_word(b, self._thread, word) for word in (ThreadWord.ALL, ThreadWord.REPLICAS))
        refusing = b.load(self._refusing, typ=INT)
        number = b.sub(refusing, b.sdiv(b.sub(own, every), index(8)))
        is_own = b.icmp_unsigned("<", number, load_word(b, self._thread, ThreadWord.COUNT))
        with b.if_then(is_own):
            replica = load_pointer(b, load_pointer(b, self._thread, ThreadWord.ALL), refusing)
            b.store(b.load(self._refused, typ=INT), word_at(b, replica, ReplicaWord.REFUSED))
            b.store(index(OF_CHECK), word_at(b, replica, ReplicaWord.REFUSED_BY))
            b.store(number, word_at(b, self._thread, ThreadWord.AT))
            b.ret(index(CallResult.INPUT_REFUSED))
        b.ret(index(CallResult.OTHERS_FAILED))

    def _begin_launch(self) -> None:
        """Records in STARTED that the launch begins; returns NOT_BEGUN if an earlier one ended the rounds.

        So all threads do the same launches.
        """
        b = self._b
        started = word_at(b, self._shared, SharedWord.STARTED)
        launch = b.shl(load_word(b, self._thread, ThreadWord.LAUNCH_NUMBER), index(1))
        again, going = (b.append_basic_block(name) for name in ("again", "going"))
        b.branch(again)
        b.position_at_end(again)
        before = b.load_atomic(started, "acquire", 8, typ=INT)
        is_last = b.icmp_signed("!=", b.and_(before, index(1)), index(0))
        self._return_if(b.and_(is_last, b.icmp_signed("<", before, launch)), CallResult.NOT_BEGUN)
        is_new = b.icmp_signed("<", before, launch)
        exchanged = b.cmpxchg(started, before, b.select(is_new, launch, before), "acq_rel", "acquire")
        b.cbranch(b.extract_value(exchanged, 1), going, again)
        b.position_at_end(going)

    def _phases_of(self, step: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The first phase of a round, and the one behind its last; all replicas have the same."""
        b = self._b
        first = load_pointer(b, load_pointer(b, self._thread, ThreadWord.REPLICAS), 0)
        variant = load_word(b, self._row(first, step), RowWord.VARIANT)
        variants = word_at(b, load_pointer(b, self._shared, SharedWord.VARIANTS), b.mul(variant, index(2)))
        return load_word(b, variants, 0), load_word(b, variants, 1)

    def _run_up_to(self, last: ir.Value, begin: ir.Value, end: ir.Value) -> None:
        """Emits the rounds that are not done, up to `last`, which alone may have exchanges.

        A replica does all of them up to the first exchange before the next replica begins: what it reads and
        writes in every round then stays in the core's caches.
        """
        b = self._b
        phases = load_pointer(b, self._shared, SharedWord.PHASES)
        with self._e.loop(end, begin) as phase:
            in_first = b.icmp_signed("==", phase, begin)
            in_last = b.icmp_signed("==", b.add(phase, index(1)), end)
            first = b.select(in_first, b.load(self._undone, typ=INT), last)
            with self._each_replica(), self._e.loop(b.add(last, index(1)), first) as step:
                is_whole = b.icmp_signed("<", step, last)
                own = b.select(is_whole, self._phases_of(step)[0], phase)
                words = word_at(b, phases, b.mul(own, index(PhaseWord.WORDS)))
                self._run_phase(words, step, b.or_(is_whole, in_first), b.or_(is_whole, in_last))
            with b.if_then(b.not_(in_last)):
                self._exchange(word_at(b, phases, b.mul(phase, index(PhaseWord.WORDS))))
        b.store(b.add(last, index(1)), self._undone)
        with self._unlikely(b.load(self._ends, typ=ir.IntType(1))):
            self._set(SharedWord.STOPPED)
            b.ret(index(CallResult.ALL_DONE))

    def _run_phase(self, phase: ir.Value, step: ir.Value, is_first: ir.Value, is_last: ir.Value) -> None:
        """Emits the code of this replica's part in a phase."""
        row = self._row(self._replica, step)
        with self._b.if_then(self._b.not_(self._is_bad(Stops.STICKY))):
            self._do_phase(phase, row, is_first)
        with self._b.if_then(is_last):
            self._note(row, step)
        with self._unlikely(self._is_bad(Stops.ENDS)):
            self._set(SharedWord.BAD)
            with self._b.if_then(self._b.not_(self._has_workers())):  # else all end at the next exchange
                self._set(SharedWord.STARTED)

    def _do_phase(self, phase: ir.Value, row: ir.Value, is_first: ir.Value) -> None:
        """Emits the calls of this replica in a phase, and what comes before them."""
        b = self._b
        with b.if_else(is_first) as (begins, goes_on):
            with begins:
                was_bad = self._is_bad(Stops.ENDS)
                self._copy(
                    bytes_on(b, load_pointer(b, self._bases, Region.STATE), 0),
                    load_pointer(b, row, RowWord.STATE),
                    load_word(b, self._shared, SharedWord.STATE_NBYTES),
                )
                with self._unlikely(was_bad):  # it writes nothing any more, while others go on
                    b.store(index(1), self._status())
                self._make_batch(row)
            with goes_on:
                self._take_check_of_pass()
        with self._e.loop(load_word(b, phase, PhaseWord.END), load_word(b, phase, PhaseWord.FIRST)) as which:
            self._call(which, self._bases)

    def _exchange(self, phase: ir.Value) -> None:
        """Emits what lies between two meetings: this thread's part of the pass, then devices' own work.

        Where some replica's status is set, all end after this round; in rounds without an exchange the others
        go on to the end of the launch. With other workers one thread meets them first, while the others wait.
        Workers that share memory exchange in the pass; else it only sums, one thread exchanges the sums, and
        a second pass uses them. That is done before a later exchange where nothing needs it earlier.
        """
        b = self._b
        self._note_time(TimesWord.ARRIVED)
        self._wait_for_all()
        earlier = load_pointer(b, phase, PhaseWord.ENDS)
        ends_later = b.icmp_signed("!=", load_word(b, phase, PhaseWord.ENDS), index(0))
        with b.if_then(self._has_workers()):
            with self._of_first_thread():
                with b.if_then(ends_later), b.if_then(self._is_under_way(earlier)):
                    self._call_between_workers(load_pointer(b, earlier, PhaseWord.WAIT))
                self._meet_workers()
            self._wait_for_all()
        self._note_time(TimesWord.ALL_ARRIVED)
        meeting = b.load(self._arrivals, typ=INT)
        b.store(meeting, word_at(b, self._thread, ThreadWord.MEETING))
        self._end_if(self._is_set(SharedWord.BAD))  # no thread sets it until the next meeting
        with b.if_else(ends_later) as (later, now):
            with later:
                self._exchange_later(phase, earlier, meeting)
            with now:
                pieces = load_word(b, phase, PhaseWord.PIECES)
                with b.if_else(b.icmp_signed("!=", pieces, index(0))) as (in_pieces, whole):
                    with in_pieces:
                        self._exchange_pieces(phase, pieces)
                    with whole:
                        self._exchange_now(phase)
                self._wait_for_all()
                with b.if_then(self._has_device_calls(phase)):
                    self._call_devices(phase)
                    self._wait_for_all()
        self._note_time(TimesWord.ENDED)

    def _is_under_way(self, phase: ir.Value) -> ir.Value:
        return self._b.icmp_signed("!=", load_word(self._b, phase, PhaseWord.UNDER_WAY), index(0))

    def _exchange_later(self, phase: ir.Value, earlier: ir.Value, meeting: ir.Value) -> None:
        """Ends the exchange of an earlier round, whose sums are there, and begins that of this one.

        The threads meet equally often whether there is an earlier one or not.
        """
        b = self._b
        is_under_way = self._is_under_way(earlier)
        with b.if_then(is_under_way):
            b.call(_function(b, load_word(b, earlier, PhaseWord.USES)), [self._thread])
        self._wait_for_all()
        with b.if_then(is_under_way):
            self._call_devices(earlier)
        self._wait_for_all()
        with self._of_first_thread():
            b.store(index(0), word_at(b, earlier, PhaseWord.UNDER_WAY))
        b.call(_function(b, load_word(b, phase, PhaseWord.PASS)), [self._thread])
        self._wait_for_all()
        with self._of_first_thread():
            self._call_between_workers(load_pointer(b, phase, PhaseWord.POST))
            b.store(meeting, word_at(b, phase, PhaseWord.UNDER_WAY))

    def _exchange_now(self, phase: ir.Value) -> None:
        b = self._b
        b.call(_function(b, load_word(b, phase, PhaseWord.PASS)), [self._thread])
        uses = load_word(b, phase, PhaseWord.USES)
        with b.if_then(b.icmp_signed("!=", uses, index(0))):
            self._wait_for_all()
            with self._of_first_thread():
                self._call_workers(phase)
            self._wait_for_all()
            b.call(_function(b, uses), [self._thread])

    def _exchange_pieces(self, phase: ir.Value, pieces: ir.Value) -> None:
        """Sums a piece, begins to exchange it, and uses the piece PIECE_LAG before, which has come then."""
        b = self._b
        calls = load_pointer(b, phase, PhaseWord.CALLS)
        number = word_at(b, self._thread, ThreadWord.PIECE)

        def call_workers(piece: ir.Value, which: int) -> None:
            position = b.add(b.mul(piece, index(2)), index(which))
            with self._of_first_thread():
                self._call_between_workers(word_at(b, calls, b.mul(position, index(CALL_ARGUMENTS + 1))))

        with self._e.loop(b.add(pieces, index(PIECE_LAG))) as piece:
            with b.if_then(b.icmp_signed("<", piece, pieces)):
                b.store(piece, number)
                b.call(_function(b, load_word(b, phase, PhaseWord.PASS)), [self._thread])
                self._wait_for_all()
                call_workers(piece, 0)
            behind = b.sub(piece, index(PIECE_LAG))
            with b.if_then(b.icmp_signed(">=", behind, index(0))):
                call_workers(behind, 1)
                self._wait_for_all()
                b.store(behind, number)
                b.call(_function(b, load_word(b, phase, PhaseWord.USES)), [self._thread])

    def _has_device_calls(self, phase: ir.Value) -> ir.Value:
        return self._b.icmp_signed(">=", load_word(self._b, phase, PhaseWord.DEVICE), index(0))

    def _call_devices(self, phase: ir.Value) -> None:
        """Emits what devices do behind a pass, each in one thread."""
        b = self._b
        own, threads = (load_word(b, self._thread, word) for word in (ThreadWord.NUMBER, ThreadWord.THREADS))
        central = load_pointer(b, self._shared, SharedWord.CENTRAL)
        self._replica_number = index(0)
        self._replica = load_pointer(b, load_pointer(b, self._thread, ThreadWord.REPLICAS), 0)
        function = load_word(b, phase, PhaseWord.DEVICE)
        devices = load_word(b, self._shared, SharedWord.DEVICES)
        with (
            b.if_then(self._has_device_calls(phase)),
            self._e.loop(devices) as device,
            b.if_then(b.icmp_signed("==", b.urem(device, threads), own)),
        ):
            self._call(function, load_pointer(b, central, device))

    def _note_time(self, which: TimesWord) -> None:
        """Notes the time in this exchange's row, if that is asked for; the last time ends the row."""
        if not has_clock():
            return
        b = self._b
        times = load_word(b, self._thread, ThreadWord.TIMES)
        with self._unlikely(b.icmp_signed("!=", times, index(0))):
            row = b.mul(load_word(b, self._thread, ThreadWord.TIMED), index(TimesWord.WORDS))
            into = word_at(b, load_pointer(b, self._thread, ThreadWord.TIMES), b.add(row, index(which)))
            b.call(self._clock, [ir.Constant(ir.IntType(32), MONOTONIC), into])
            if which is TimesWord.ENDED:
                timed = word_at(b, self._thread, ThreadWord.TIMED)
                b.store(b.add(b.load(timed, typ=INT, align=8), index(1)), timed)

    @contextmanager
    def _of_first_thread(self) -> Iterator[None]:
        own = load_word(self._b, self._thread, ThreadWord.NUMBER)
        with self._b.if_then(self._b.icmp_signed("==", own, index(0))):
            yield

    def _meet_workers(self) -> None:
        """Tells the other workers how this one is, and stops if one has failed."""
        b = self._b
        control = load_pointer(b, self._shared, SharedWord.CONTROL)
        b.store(b.zext(self._is_set(SharedWord.BAD), INT), control)
        count = word_at(b, control, 1)
        b.store(b.add(b.load(count, typ=INT), index(1)), count)
        threads = load_pointer(b, self._shared, SharedWord.WORKER_THREADS)
        with b.if_then(b.icmp_signed("!=", b.ptrtoint(threads, INT), index(0))):
            own = load_pointer(b, threads, load_word(b, self._shared, SharedWord.WORKER))
            b.store(load_word(b, self._thread, ThreadWord.THREADS), own)
        self._call_between_workers(load_pointer(b, self._shared, SharedWord.CONTROL_CALL))
        total = b.load(control, typ=INT)
        self._stop_if(b.icmp_signed(">=", total, index(FAILED_WORKER)), CallResult.WORKER_FAILED)
        with self._unlikely(b.icmp_signed("!=", total, index(0))):
            self._set(SharedWord.BAD)
            self._set(SharedWord.STARTED)

    def _call_workers(self, phase: ir.Value) -> None:
        """The calls of one thread, while the others wait; all workers do the same ones."""
        b = self._b
        calls = load_pointer(b, phase, PhaseWord.CALLS)
        with self._e.loop(load_word(b, phase, PhaseWord.CALL_COUNT)) as number:
            self._call_between_workers(word_at(b, calls, b.mul(number, index(CALL_ARGUMENTS + 1))))

    def _call_between_workers(self, words: ir.Value) -> None:
        """Calls a `NativeCall`; this worker stops if it fails."""
        b = self._b
        kind = ir.FunctionType(ir.IntType(32), [INT] * CALL_ARGUMENTS)
        function = b.inttoptr(load_word(b, words, 0), ir.PointerType(kind))
        arguments = [load_word(b, words, 1 + number) for number in range(CALL_ARGUMENTS)]
        result = b.call(function, arguments)
        self._stop_if(b.icmp_signed("!=", result, ir.Constant(ir.IntType(32), 0)), CallResult.CALL_FAILED)

    def _stop_if(self, condition: ir.Value, result: CallResult) -> None:
        with self._unlikely(condition):
            self._set(SharedWord.STOPPED)
            self._b.ret(index(result))

    def _has_workers(self) -> ir.Value:
        b = self._b
        return b.icmp_signed("!=", load_word(b, self._shared, SharedWord.CONTROL), index(0))

    @contextmanager
    def _each_replica(self) -> Iterator[None]:
        b = self._b
        replicas = load_pointer(b, self._thread, ThreadWord.REPLICAS)
        with self._e.loop(load_word(b, self._thread, ThreadWord.COUNT)) as number:
            self._replica_number = number
            self._replica = load_pointer(b, replicas, number)
            self._bases = load_pointer(b, self._replica, ReplicaWord.BASES)
            yield

    def _row(self, replica: ir.Value, step: ir.Value) -> ir.Value:
        b = self._b
        row_words = load_word(b, replica, ReplicaWord.ROW_WORDS)
        return word_at(b, load_pointer(b, replica, ReplicaWord.ROWS), b.mul(step, row_words))

    def _note(self, row: ir.Value, step: ir.Value) -> None:
        """Copies what the round fetches, and counts it as done."""
        b = self._b
        self._fetch(load_word(b, row, RowWord.RING))
        b.store(b.add(step, index(1)), word_at(b, self._replica, ReplicaWord.DONE))

    def _is_bad(self, effect: Stops) -> ir.Value:
        """True if this replica's status is set, and has this effect."""
        b = self._b
        is_set = b.icmp_signed("!=", b.load(self._status(), typ=INT, align=8), index(0))
        stops = load_word(b, self._thread, ThreadWord.STOPS)
        return b.and_(is_set, b.icmp_signed("==", stops, index(effect)))

    def _take_check_of_pass(self) -> None:
        """Sets this replica's status if the pass has found a sum that is not finite."""
        b = self._b
        last = b.load_atomic(word_at(b, self._shared, SharedWord.NOT_FINITE), "acquire", 8, typ=INT)
        meeting = load_word(b, self._thread, ThreadWord.MEETING)
        with self._unlikely(b.icmp_signed("==", last, meeting)):
            b.store(index(1), self._status())

    def _status(self) -> ir.Value:
        b = self._b
        state = load_pointer(b, self._bases, Region.STATE)
        return bytes_on(b, state, load_word(b, self._shared, SharedWord.STATUS))

    def _end_if(self, condition: ir.Value) -> None:
        with self._unlikely(condition):
            self._b.store(ir.Constant(ir.IntType(1), 1), self._ends)

    def _make_batch(self, row: ir.Value) -> None:
        """Emits code that makes the batch from picks, where there are some, or copies what is fed."""
        b, replica = self._b, self._replica
        picks = load_word(b, row, RowWord.PICKS)
        with b.if_else(b.icmp_signed("!=", picks, index(0))) as (made, copied):
            with made:
                bases = load_pointer(b, replica, ReplicaWord.BATCH_BASES)
                b.store(picks, word_at(b, bases, Region.PICKS))
                self._call_address(load_word(b, replica, ReplicaWord.BATCH), bases, index(OF_BATCH))
            with copied:
                table = load_pointer(b, self._shared, SharedWord.INPUT_TABLE)
                inputs = load_pointer(b, self._bases, Region.INPUT)
                with self._e.loop(load_word(b, self._shared, SharedWord.INPUTS)) as number:
                    entry = word_at(b, table, b.mul(number, index(2)))
                    source = load_pointer(b, row, b.add(number, index(RowWord.SOURCES)))
                    self._copy(bytes_on(b, inputs, load_word(b, entry, 0)), source, load_word(b, entry, 1))

    def _fetch(self, ring: ir.Value) -> None:
        b = self._b
        table = load_pointer(b, self._shared, SharedWord.FETCH_TABLE)
        target = bytes_on(b, load_pointer(b, self._bases, Region.RING), ring)
        with self._e.loop(load_word(b, self._shared, SharedWord.FETCHES)) as number:
            entry = word_at(b, table, b.mul(number, index(4)))
            source = bytes_on(b, load_pointer(b, self._bases, load_word(b, entry, 0)), load_word(b, entry, 1))
            self._copy(bytes_on(b, target, load_word(b, entry, 2)), source, load_word(b, entry, 3))

    def _copy(self, target: ir.Value, source: ir.Value, nbytes: ir.Value) -> None:
        copy_bytes(self._b, target, source, nbytes)

    def _call(self, which: ir.Value, bases: ir.Value) -> None:
        """Calls a function of base addresses, by its number in FUNCTIONS."""
        address = load_word(self._b, load_pointer(self._b, self._shared, SharedWord.FUNCTIONS), which)
        self._call_address(address, bases, which)

    def _call_address(self, address: ir.Value, bases: ir.Value, which: ir.Value) -> None:
        """Calls a function of base addresses; all threads stop when one of its calls refuses its input."""
        b, replica = self._b, self._replica
        refused = b.call(_function(b, address), [bases])
        with self._unlikely(b.icmp_signed("!=", refused, ACCEPTED)):
            b.store(refused, word_at(b, replica, ReplicaWord.REFUSED))
            b.store(which, word_at(b, replica, ReplicaWord.REFUSED_BY))
            b.store(self._replica_number, word_at(b, self._thread, ThreadWord.AT))
            self._set(SharedWord.STOPPED)
            b.ret(index(CallResult.INPUT_REFUSED))

    def _is_set(self, which: SharedWord) -> ir.Value:
        word = word_at(self._b, self._shared, which)
        return self._b.icmp_signed("!=", self._b.load_atomic(word, "acquire", 8, typ=INT), index(0))

    def _set(self, which: SharedWord) -> None:
        self._b.atomic_rmw("or", word_at(self._b, self._shared, which), index(1), "release")

    def _return_if(self, condition: ir.Value, result: CallResult) -> None:
        with self._unlikely(condition):
            self._b.ret(index(result))

    @contextmanager
    def _unlikely(self, condition: ir.Value) -> Iterator[None]:
        with self._b.if_then(condition, likely=False):
            yield

    def _wait_for_all(self) -> None:
        b = self._b
        wanted = b.add(b.load(self._arrivals, typ=INT), load_word(b, self._thread, ThreadWord.THREADS))
        b.store(wanted, self._arrivals)
        stopped = b.call(self._barrier, [self._shared, wanted])
        self._return_if(b.icmp_signed("!=", stopped, index(0)), CallResult.OTHERS_FAILED)


def _function(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """The function at an address."""
    return builder.inttoptr(address, ir.PointerType(SIGNATURE))
