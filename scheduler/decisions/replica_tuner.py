"""Decisions of the auto-tuner: the number of replicas per device (Crossbow, VLDB 2019, section 4).

`ReplicaTuner` is pure: it has no clock, thread or device. The caller asks `next_step()`, measures a window
with that many replicas, passes its images per second to `record`, and repeats until it gets a `Decision`.
A change of the batch size, or of anything else that changes the duration of a step, needs a new tuner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import median

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError

THRESHOLD = 0.05
"""Least relative gain in throughput that justifies more replicas: they take memory, and the central model
moves less often per image. A gain below 5 % is also hard to distinguish from noise."""

STEADY = 0.2
"""Greatest spread of one count's windows that passes for noise; more means the machine did other work."""

_CONFIDENCE = 1.96  # standard errors of a 95 % interval
_MEDIAN_ERROR = 1.2533  # standard error of a median relative to that of a mean: sqrt(pi / 2)
_MAD_TO_DEVIATION = 1.4826  # standard deviation / median absolute deviation, of a normal distribution
_EQUAL = 0.6  # share of `_error` within which a count passes for as fast as the fastest
_LOOK_PAST = 2  # counts without a gain after which the curve passes for flat


@dataclass(frozen=True)
class Measurement:
    """Windows measured with one count of replicas per device.

    windows: images per second of each window, in the order of `record`. mode: of the replicas; None on
    devices without.
    """

    replicas: int
    windows: tuple[float, ...]
    mode: str | None = None

    @property
    def images_per_second(self) -> float:
        """The median of the windows."""
        return median(self.windows)

    @property
    def spread(self) -> float:
        """Difference between the fastest and the slowest window, as a fraction of the median."""
        return (max(self.windows) - min(self.windows)) / self.images_per_second


@dataclass(frozen=True)
class Measure:
    """Request to measure one more window with `replicas` replicas per device; mode: as of a Measurement."""

    replicas: int
    reason: str
    mode: str | None = None


@dataclass(frozen=True)
class Decision:
    """The number of replicas per device to use, and their mode, on devices with modes.

    complete: False if the tuner was ended before it was sure.
    """

    replicas: int
    images_per_second: float
    reason: str
    complete: bool
    mode: str | None = None


class ReplicaTuner:
    """Finds the smallest count of replicas whose throughput is within a threshold of the greatest.

    The count grows by one while throughput grows. If two more replicas gained less than the threshold, it
    measures twice the count; growth continues if that is faster. Where only some counts are allowed, it grows
    from each to the next. Each count gets several windows, whose
    median is its throughput. Counts that matter for the decision, but do not differ by more than noise, get
    more windows in turn. Because a machine's speed drifts, the choice and the best other count are
    measured again before the decision; if the windows of one count disagree, so are all other counts with
    at least half the best throughput. Every decision uses all windows so far, so later windows correct
    earlier mistakes.
    """

    def __init__(
        self,
        most: int,
        threshold: float = THRESHOLD,
        windows: int = 3,
        most_windows: int | None = None,
        why_no_more: str = "",
        start: int = 1,
        allowed: Sequence[int] | None = None,
    ):
        """most: greatest count to try; why_no_more: the reason for this limit. start: first count to measure.
        allowed: counts to try, rising; by default all from 1.

        threshold: fraction in (0, 1). windows: least windows per count; most_windows: most windows per count,
        by default 36 times as many. Raises InvalidArgumentError for values out of range.
        """
        most_windows = 36 * windows if most_windows is None else most_windows
        for name, value, least in (
            ("most", most, 1),
            ("start", start, 1),
            ("windows", windows, 1),
            ("most_windows", most_windows, windows),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidArgumentError(f"{name}: expected an integer of at least {least}, got {value!r}")
        if not 0 < threshold < 1:
            raise InvalidArgumentError(
                f"threshold: expected a fraction in (0, 1), as 0.05, got {threshold!r}"
            )
        self.threshold = threshold
        self.windows = windows
        self.most_windows = most_windows
        self.most, self._start = max(most, start), start
        self._allowed = [*range(1, self.most + 1)] if allowed is None else [*allowed]
        self.why_no_more = why_no_more
        self._told: dict[int, list[float]] = {}
        self._medians: dict[int, float] = {}
        self._deviations: dict[int, list[float]] = {}  # of windows from their median, relative to it
        self._noise = 0.0  # relative standard deviation of a window, estimated from all counts
        self._again: dict[int, list[float]] = {}  # by count: windows measured after one of another count
        self._last = 0  # count of the last window
        self._ended: str | None = None

    # Told ---------------------------------------------------------------------------------------

    def record(self, replicas: int, images_per_second: float) -> Measurement:
        """Records one window with `replicas` replicas per device; returns all windows of that count.

        Raises InvalidArgumentError for a count out of range, or a rate that is not positive and finite.
        """
        if not 1 <= replicas <= self.most:
            raise InvalidArgumentError(f"replicas: expected a count of 1 to {self.most}, got {replicas}")
        if not 0 < images_per_second < math.inf:
            raise InvalidArgumentError(
                f"images_per_second: expected a positive, finite rate, got {images_per_second}"
            )
        windows = self._told.setdefault(replicas, [])
        if windows and (replicas != self._last or replicas in self._again):
            self._again.setdefault(replicas, []).append(float(images_per_second))
        self._last = replicas
        windows.append(float(images_per_second))
        middle = self._medians[replicas] = median(windows)
        away = sorted(abs(window / middle - 1) for window in windows)
        self._deviations[replicas] = away[len(away) % 2 :]  # without the median itself
        deviations = [each for of_count in self._deviations.values() for each in of_count]
        self._noise = _MAD_TO_DEVIATION * median(deviations) if deviations else 0.0
        return Measurement(replicas, tuple(windows))

    def limit(self, most: int, why_no_more: str) -> None:
        """Lowers the greatest count to try, at least to the greatest one already measured."""
        self.most = max(most, *self._told, 1)
        self.why_no_more = why_no_more

    def end(self, reason: str) -> None:
        """Makes the next step a decision from the windows so far. reason: why no more can be measured."""
        self._ended = reason

    @property
    def steady(self) -> bool:
        """True if the windows of every count agree so far: spread at most STEADY."""
        return all(measurement.spread <= STEADY for measurement in self.measurements)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All measurements, by rising count."""
        return tuple(Measurement(count, tuple(self._told[count])) for count in sorted(self._told))

    # Decided ------------------------------------------------------------------------------------

    def next_step(self) -> Measure | Decision:
        """Next window to measure, or the decision. Raises FailedPreconditionError if ended without any."""
        if self._ended is not None:
            return self._choice_at_the_end(self._ended)
        step = self._growth()
        if step is not None:
            return step
        medians = self._medians
        chosen = self._smallest_good_enough(medians)
        below = max((count for count in self._allowed if count < chosen), default=chosen)
        if self._count(below) < self.windows and below < chosen:
            return Measure(below, f"{chosen} is good, but {below} has not been measured")
        doubtful = self._doubtful(medians, chosen)
        if doubtful is not None:
            return Measure(doubtful, f"{self._count(doubtful)} windows do not tell it apart from others")
        unconfirmed = self._unconfirmed(medians, chosen)
        if unconfirmed is not None:
            return Measure(unconfirmed, "measured again, at another time, to confirm it")
        return Decision(chosen, medians[chosen], self._why(medians, chosen), complete=True)

    def _choice_at_the_end(self, ended: str) -> Decision:
        medians = self._medians
        if not medians:
            raise FailedPreconditionError(f"nothing has been measured: {ended}")
        known = {c: value for c, value in medians.items() if self._count(c) >= self.windows} or medians
        line = max(known.values()) * (1 - self.threshold)
        chosen = min(count for count, value in known.items() if value >= line)
        return Decision(chosen, medians[chosen], f"{self._why(medians, chosen)}; {ended}", complete=False)

    def _why(self, medians: dict[int, float], chosen: int) -> str:
        """Reason for the choice, as text."""
        last, peak = max(medians), max(medians, key=medians.__getitem__)
        if chosen == last:
            in_order = [medians[count] for count in sorted(medians)]
            grown = "images/s grow up to it" if in_order == sorted(in_order) else "it is the fastest"
            if len(medians) == 1:
                grown = "it is the only one measured"
            if any(last < count <= self.most for count in self._allowed):
                return grown if len(medians) == 1 else f"{grown}; larger numbers were not measured"
            limit = f" ({self.why_no_more})" if self.why_no_more else ""
            return f"{grown}; {last} is the most that may be tried{limit}"
        if chosen == peak:
            if all(count in medians for count in self._allowed if count <= last):
                return f"no other count up to {last} is faster"
            others = [str(count) for count in sorted(medians) if count != chosen]
            return f"none of {', '.join(others)} is faster"
        gain = medians[peak] / medians[chosen] - 1
        if gain < self.threshold / (1 - self.threshold):
            return f"{peak} bring {gain:.1%} more images/s, below the threshold of {self.threshold:.1%}"
        return (
            f"{peak} seem to bring {gain:.1%} more images/s, but several counts are as good, and windows "
            f"deviate by {self._noise:.1%}"
        )

    def _growth(self) -> Measure | None:
        """Next count to measure while throughput grows; None when the curve's end has been measured."""
        if self._count(self._start) < self.windows:
            return Measure(self._start, "the first count")
        counts = [count for count in self._allowed if count <= self.most]
        known = [*takewhile(lambda count: self._count(count) >= self.windows, counts)]
        if not known:
            return Measure(counts[0], "the smallest count")
        frontier, further = known[-1], counts[len(known) :]
        if further and self._rises_after(known):
            return Measure(further[0], f"throughput grows up to {frontier}, or beyond")
        far = counts[min(2 * len(known), len(counts)) - 1]
        if far > frontier and self._count(far) < self.windows and not self._falls_at(known):
            return Measure(far, f"measured ahead, since the last counts up to {frontier} gained little")
        return None

    def _rises_after(self, known: Sequence[int]) -> bool:
        """True if the last of the known counts, or a greater one, gained more than the threshold."""
        medians = self._medians
        if len(known) <= _LOOK_PAST:
            return True
        before = max(medians[count] for count in known[:-_LOOK_PAST])
        last = max(medians[count] for count in known[-_LOOK_PAST:])
        if last > before * (1 + self.threshold):
            return True
        best = max(before, last)
        beyond = [c for c in medians if c > known[-1] and self._count(c) >= self.windows]
        return any(medians[count] > best * (1 + self.threshold) for count in beyond)

    def _falls_at(self, known: Sequence[int]) -> bool:
        """True if the last of the known counts are all clearly slower than one before them."""
        medians = self._medians
        best = max(known, key=medians.__getitem__)
        behind = known[known.index(best) + 1 :]
        return len(behind) >= _LOOK_PAST and all(
            medians[count] * (1 + self._error(count, best)) < medians[best] * (1 - self.threshold)
            for count in behind
        )

    def _top(self, medians: dict[int, float]) -> float:
        """Estimate of the greatest throughput: mean of the medians that are within noise of the greatest.

        The maximum of many noisy figures itself is biased upwards.
        """
        peak = max(medians, key=medians.__getitem__)
        equal = [
            value
            for count, value in medians.items()
            if value >= medians[peak] * (1 - _EQUAL * self._error(count, peak))
        ]
        return sum(equal) / len(equal)

    def _smallest_good_enough(self, medians: dict[int, float]) -> int:
        line = self._top(medians) * (1 - self.threshold)
        return min(count for count, value in medians.items() if value >= line)

    def _doubtful(self, medians: dict[int, float], chosen: int) -> int | None:
        """Count that most needs another window, or None if more windows would not change the choice.

        Noise may have put a smaller count below the threshold line, or hidden that a greater one is so fast
        that the chosen count is below it.
        """
        peak = max(medians, key=medians.__getitem__)
        line = self._top(medians) * (1 - self.threshold)
        involved: set[int] = set()
        for count, value in medians.items():
            if count == chosen:
                continue
            other = chosen if count > chosen else peak
            hoped = value * (1 + self._error(count, other))
            if (hoped >= line) if count < chosen else (hoped * (1 - self.threshold) > medians[chosen]):
                involved |= {count, other}
        wanting = [count for count in involved if self._count(count) < self.most_windows]
        if self._last in wanting and self._count(self._last) % self.windows:
            return self._last  # to change the count costs more than a window
        return min(wanting, key=lambda count: (self._count(count), count), default=None)

    def _unconfirmed(self, medians: dict[int, float], chosen: int) -> int | None:
        """Count to measure again, until choice and rivals repeat their throughput; None when they do."""
        others = [count for count in medians if count != chosen]
        if not others:
            return None
        best = max(others, key=medians.__getitem__)
        looked_at = [best, chosen]
        if not self.steady:
            half = max(medians[best], medians[chosen]) / 2
            once = [c for c in sorted(others) if len(self._again.get(c, ())) < self.windows]
            looked_at += [count for count in once if count != best and medians[count] >= half]
        open_to_more = [count for count in looked_at if self._count(count) < self.most_windows]
        wanting = [count for count in open_to_more if not self._confirmed(count, medians[count])]
        if not wanting:
            return None
        if self._last in wanting and self._last in self._again:
            return self._last  # to change the count costs more than a window
        return next((count for count in (*wanting, *open_to_more) if count != self._last), None)

    def _confirmed(self, count: int, known: float) -> bool:
        again = self._again.get(count, [])
        return len(again) >= self.windows and abs(median(again) / known - 1) <= self.threshold

    def _error(self, one: int, other: int) -> float:
        """Half-width of the 95 % interval of the ratio of two medians, as a fraction."""
        return (
            _CONFIDENCE
            * _MEDIAN_ERROR
            * self._noise
            * math.sqrt(1 / self._count(one) + 1 / self._count(other))
        )

    def _count(self, replicas: int) -> int:
        return len(self._told.get(replicas, ()))
