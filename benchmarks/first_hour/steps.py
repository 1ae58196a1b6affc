"""Stage 2: a training step kernel by kernel, timed on the GPU by events, and cuDNN's choice per layer.

The calls of an op are captured many times over as one graph, so that a figure has no host time in it. They
run back to back on data in the caches: what a step adds to their sum is dependencies and cold caches.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from replica_modes import TASKS, Ways
from step_calls import multiply_adds, title, touched

from first_hour.engines import calls_of, plans_of, segments_of, split, training
from first_hour.gpus import opened
from first_hour.records import NotThereError, Recorder
from tensorbow.devices.cuda_runtime import CudaRuntime

Row = dict[str, Any]
TURNS = 5
WARM_ROUNDS = 4
ROWS = 60  # of the table that is kept
EVERY = 8  # rows between two notes of unfinished work


class Stopwatch:
    """Microseconds of work enqueued on a stream, by events around it: the median of some turns."""

    def __init__(self, runtime: CudaRuntime, stream: int):
        self._runtime, self._stream = runtime, stream
        self._events = [runtime.make_event(timing=True) for _ in range(2)]

    def us(self, work: Callable[[], object], turns: int = TURNS) -> float:
        runtime, (start, end) = self._runtime, self._events
        work()
        taken = []
        for _ in range(turns):
            runtime.record(start, self._stream)
            work()
            runtime.record(end, self._stream)
            runtime.synchronize_event(end)
            taken.append(1e3 * runtime.elapsed_ms(start, end))
        return statistics.median(taken)

    def close(self) -> None:
        for event in self._events:
            self._runtime.destroy_event(event)


@contextmanager
def captured(runtime: CudaRuntime, stream: int, work: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Launch of a graph of the work."""
    runtime.begin_capture(stream)
    try:
        work()
    finally:
        graph = runtime.end_capture(stream)
    try:
        yield lambda: runtime.launch_graph(graph, stream)
        runtime.synchronize_stream(stream)
    finally:
        runtime.destroy_graph(graph)


def kernels(recorder: Recorder, case: str, repeats: int) -> None:
    """Part: the step of a case, as one replica does it alone."""

    def check() -> dict[str, Any]:
        with opened() as (device,), training(case, [device], 1, Ways(TASKS), "none") as trained:
            trained.run_rounds(WARM_ROUNDS)
            (plan,) = plans_of(trained)
            runtime, stream = device.runtime, plan.stream
            watch = Stopwatch(runtime, stream)
            rows: list[Row] = []
            for segment in segments_of(plan):
                for group, call, capturable in calls_of(plan, segment):
                    row = {
                        "call": title(group),
                        "gflop": 2e-9 * multiply_adds(group),
                        "mb": touched(group) / 1e6,
                    }
                    many = lambda call=call: [call() for _ in range(repeats)]  # noqa: E731
                    if capturable:
                        with captured(runtime, stream, many) as launch:
                            row["us"] = watch.us(launch) / repeats
                    else:
                        row["us"] = watch.us(many) / repeats
                    rows.append({key: v if isinstance(v, str) else round(v, 4) for key, v in row.items()})
                    if len(rows) % EVERY == 0:
                        recorder.note(name, calls_so_far=len(rows))
            whole = lambda: [plan.launch(segment) for segment in segments_of(plan)]  # noqa: E731
            step_us = watch.us(whole, turns=4 * TURNS)
            watch.close()
        total = sum(row["us"] for row in rows)
        rows.sort(key=lambda row: -row["us"])
        _, batch_size = split(case)
        operations = sum(row["gflop"] for row in rows)
        return {
            "kernels": len(rows),
            "sum_of_kernels_us": round(total, 1),
            "step_us": round(step_us, 1),
            "images_per_second_of_one": round(1e6 * batch_size / step_us) if step_us else None,
            "gflop": round(operations, 4),
            "tflops_in_the_step": round(1e-3 * operations / (1e-6 * step_us), 2) if step_us else None,
            "calls": _merged(rows)[:ROWS],
        }

    name = f"{case}, kernel by kernel"
    recorder.check(name, check, most_s=240.0)


def _merged(rows: list[Row]) -> list[Row]:
    """Rows of the same op and shapes as one, with how many there are; the longest first."""
    found: dict[str, Row] = {}
    for row in rows:
        one = found.setdefault(
            row["call"], {"call": row["call"], "times": 0, "us": 0.0, "gflop": 0.0, "mb": 0.0}
        )
        one["times"] += 1
        for key in ("us", "gflop", "mb"):
            one[key] = round(one[key] + row[key], 4)
    for one in found.values():
        if one["us"]:
            one["gflops_per_s"] = round(1e6 * one["gflop"] / one["us"], 1)
            one["gb_per_s"] = round(1e3 * one["mb"] / one["us"], 1)
    return sorted(found.values(), key=lambda one: -one["us"])


class _Recorded:
    """Function of a library that notes its arguments and status. ctypes' types are set on the function."""

    def __init__(self, name: str, function: Any, calls: list[tuple[str, tuple[Any, ...], Any]]):
        self.__dict__.update(_name=name, _function=function, _calls=calls)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._function, name, value)

    def __call__(self, *arguments: Any) -> Any:
        status = self._function(*arguments)
        self._calls.append((self._name, arguments, status))
        return status


class _RecordedLibrary:
    """Library whose functions are `_Recorded`."""

    def __init__(self, library: Any):
        self._library = library
        self.calls: list[tuple[str, tuple[Any, ...], Any]] = []

    def __getattr__(self, name: str) -> Any:
        return _Recorded(name, getattr(self._library, name), self.calls)


def choices(recorder: Recorder, case: str) -> None:
    """Part: for each convolution of a step that cuDNN does its shapes, algorithm and workspace."""

    def check() -> dict[str, Any]:
        with opened() as (device,):

            def build() -> None:
                with training(case, [device], 1, Ways(TASKS), "none") as trained:
                    trained.run_rounds(1)

            rows, refused = convolutions_of(device.runtime, build)
        if not rows and not refused:
            raise NotThereError("this step has no call of cuDNN")
        return {"convolutions": rows, "refused": refused}

    recorder.check(f"{case}, cuDNN's choices", check)


def convolutions_of(runtime: CudaRuntime, run: Callable[[], None]) -> tuple[list[Row], list[Row]]:
    """Convolutions that cuDNN was asked to do while something ran, and those that it refused."""
    usual, seen = runtime.library, list[_RecordedLibrary]()

    def library(name: str) -> Any:
        if name != "cudnn":
            return usual(name)
        seen.append(_RecordedLibrary(usual(name)))
        return seen[-1]

    runtime.library = library  # type: ignore[method-assign]
    try:
        run()
    finally:
        del runtime.library  # type: ignore[method-assign]  # uncovers the method of the class
    calls = [call for each in seen for call in each.calls]
    return _convolutions(calls), _refused(calls)


def _number(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)


def _convolutions(calls: list[tuple[str, tuple[Any, ...], Any]]) -> list[Row]:
    """Rows of the convolutions that ran, alike ones as one. Descriptors are known by what set them."""
    described: dict[int, tuple[int, ...]] = {}
    found: dict[tuple[Any, ...], Row] = {}
    for name, arguments, _ in calls:
        if name.startswith("cudnnSet") and name.endswith("dDescriptor"):
            described[_number(arguments[0])] = tuple(map(_number, arguments[1:]))
        elif name in (
            "cudnnConvolutionForward",
            "cudnnConvolutionBackwardData",
            "cudnnConvolutionBackwardFilter",
        ):
            first, second, result = (described.get(_number(arguments[at]), ()) for at in (2, 4, 11))
            how = described.get(_number(arguments[6]), ())
            row = {
                "call": name.removeprefix("cudnnConvolution"),
                "operands": [list(first), list(second), list(result)],
                "padding_strides": list(how[:4]),
                "algorithm": _number(arguments[7]),
                "workspace_nbytes": _number(arguments[9]),
            }
            one = found.setdefault(tuple(map(str, row.values())), {**row, "times": 0})
            one["times"] += 1
    return list(found.values())


def _refused(calls: list[tuple[str, tuple[Any, ...], Any]]) -> list[Row]:
    """Queries and convolutions that did not succeed, with the status."""
    return [
        {"call": name, "status": _number(status)}
        for name, _, status in calls
        if isinstance(status, int) and status and name.startswith(("cudnnConvolution", "cudnnGetConvolution"))
    ]
