"""Sizes of the stages: the real one, and one that an emulated GPU on a CPU can do in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """cases: of stages 2 and 4. convolved: those of which cuDNN's choices are listed. counts: of replicas.
    loops: of a tight loop. rounds_s: seconds of rounds.

    window_s, windows: of each contestant of stage 5. engines: built one after the other to compare bits.
    connections: hardware queues. rounds_per_launch: tried in stages 4 and 5.
    swapped: of stage 8: models, batch sizes and extents of pictures. ways_to_swap: options swap and
    recompute. loop: steps, batch size and units of an LSTM.
    """

    cases: tuple[str, ...] = ("lenet:16", "resnet32:32")
    convolved: tuple[str, ...] = ("lenet:16", "resnet32:32")
    overlap_cases: tuple[str, ...] = ("lenet:4", "lenet:16", "resnet32:32")
    contests: tuple[str, ...] = ("lenet:16", "lenet:4", "resnet32:32", "lenet:32", "logreg:16", "resnet32:64")
    bits_case: str = "lenet:4"
    counts: tuple[int, ...] = (1, 2, 4, 8, 16)
    more_counts: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    contest_counts: tuple[int, ...] = (1, 2, 4, 8, 16)
    connections: tuple[int, ...] = (8, 32)
    rounds_per_launch: tuple[int, ...] = (1, 16)
    loops: int = 300
    calls: int = 2000
    repeats: int = 20
    rounds_s: float = 0.4
    engines: int = 50
    window_s: float = 0.5
    windows: int = 3
    vectors: tuple[int, ...] = (1, 1000, 1 << 16, 1 << 20, 1 << 24)  # elements that NCCL sums
    swapped: tuple[tuple[str, int, int], ...] = (("resnet50", 32, 224), ("resnet32", 256, 32))
    ways_to_swap: tuple[tuple[str, str], ...] = (
        ("never", "never"),
        ("hidden", "never"),
        ("smallest", "never"),
        ("never", "cheap"),
        ("never", "segments"),
        ("smallest", "segments"),
    )
    loop: tuple[int, int, int] = (100, 128, 512)
    swap_s: float = 3.0
    open_s: float = 300.0  # of all contestants together
    test_s: float = 60.0
    workers: int = 4


SIZES = {
    "full": Size(),
    "tiny": Size(
        cases=("logreg:4",),
        convolved=("lenet:2",),
        overlap_cases=("logreg:4",),
        contests=("logreg:4",),
        bits_case="logreg:4",
        counts=(1, 2),
        more_counts=(1, 2),
        contest_counts=(1, 2),
        connections=(8,),
        rounds_per_launch=(1, 2),
        loops=3,
        calls=5,
        repeats=2,
        rounds_s=0.02,
        engines=2,
        window_s=0.02,
        windows=1,
        vectors=(1, 1000),
        swapped=(("resnet8", 2, 8),),
        ways_to_swap=(("never", "never"), ("smallest", "never"), ("never", "cheap")),
        loop=(3, 2, 8),
        swap_s=0.02,
        test_s=120.0,
        workers=1,
    ),
}
