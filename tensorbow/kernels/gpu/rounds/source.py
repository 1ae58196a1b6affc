"""CUDA source of a round's first and last kernel, and of copies whose ends move from round to round."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tensorbow.kernels.gpu.runtime.program import CudaSource


class ControlWord(IntEnum):
    """Words of a device's rounds in its memory, int64."""

    NEXT = 0  # slot of the next round: the last kernel of a round writes it, the first reads it
    NOW = 1  # slot of this round: the first kernel writes it, the last reads it
    STOPPED = 2  # whether rounds change nothing any more
    BEGUN = 3  # rounds, since the host has written these words
    WORDS = 4


class Outcome(IntEnum):
    """Bits of what a round says of itself to the host."""

    DONE = 1
    STOPS = 2  # some replica's status is set, which ends the rounds


WORD = np.dtype(np.int64)
COPY = np.dtype([(name, np.int64) for name in ("source", "target", "source_step", "target_step", "nbytes")])
"""A copy of a round: addresses in slot 0, bytes from slot to slot, bytes to copy."""

ROUNDS = CudaSource.of(
    "rounds",
    """\
struct tb_copy { long long source, target, source_step, target_step, nbytes; };

template <typename T> static __device__ void tb_words(long long source, long long target, long long nbytes) {
    const T* from = reinterpret_cast<const T*>(source);
    T* to = reinterpret_cast<T*>(target);
    TB_FOR_EACH(long long, i, nbytes / (long long)sizeof(T)) to[i] = from[i];
}
static __device__ void tb_copy_slot(const tb_copy& copy, long long slot) {
    const long long source = copy.source + slot * copy.source_step;
    const long long target = copy.target + slot * copy.target_step;
    const long long together = source | target | copy.nbytes;
    if (together % 16 == 0) tb_words<int4>(source, target, copy.nbytes);
    else if (together % 4 == 0) tb_words<int>(source, target, copy.nbytes);
    else tb_words<char>(source, target, copy.nbytes);
}

// Row 0 of the grid begins the round, the others copy what comes in.
extern "C" __global__ void tb_begin_round(
    long long* control, const volatile long long* stops, int devices, long long* const* statuses, int count,
    const tb_copy* copies
) {
    const long long slot = control[$NEXT];
    if (blockIdx.y > 0) {
        tb_copy_slot(copies[blockIdx.y - 1], slot);
        return;
    }
    if (blockIdx.x > 0) return;
    // Another device may be at the end of this round already: only what ended before counts.
    const long long begun = control[$BEGUN];
    bool stopped = control[$STOPPED] != 0;
    for (int device = 0; device < devices; ++device) {
        const long long ended_by = stops[device];
        stopped = stopped || (ended_by != 0 && ended_by <= begun);
    }
    __syncthreads();
    if (stopped)
        for (int i = threadIdx.x; i < count; i += blockDim.x) *statuses[i] = 1;
    if (threadIdx.x == 0) {
        control[$NOW] = slot;
        control[$STOPPED] = stopped;
        control[$BEGUN] = begun + 1;
    }
}

// Row 0 of the grid ends the round, the others copy what is fetched. ends: by slot, whether a status ends it.
extern "C" __global__ void tb_end_round(
    long long* control, volatile long long* stops, long long* const* statuses, int count,
    const char* ends, long long ends_step, volatile long long* outcomes, long long slots,
    const tb_copy* copies
) {
    const long long slot = control[$NOW];
    if (blockIdx.y > 0) {
        tb_copy_slot(copies[blockIdx.y - 1], slot);
        return;
    }
    if (blockIdx.x > 0) return;
    __shared__ int bad;
    if (threadIdx.x == 0) bad = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        if (*statuses[i] != 0) bad = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        const bool done = control[$STOPPED] == 0;
        const bool stop = done && bad && *reinterpret_cast<const long long*>(ends + slot * ends_step) != 0;
        if (stop) *stops = control[$BEGUN];
        outcomes[slot] = (done ? $DONE : 0) | (stop ? $STOPS : 0);
        control[$NEXT] = slot + 1 < slots ? slot + 1 : 0;
        __threadfence_system();
    }
}
""",
    **{word.name: str(int(word)) for word in (*ControlWord, *Outcome) if word.name != "WORDS"},
)
