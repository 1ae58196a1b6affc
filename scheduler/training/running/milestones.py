"""Rounds at which a run evaluates, writes checkpoints and ends."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from scheduler.batches.positions import RoundPositions
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.measures.tally import Tally
from scheduler.training.running.notices import epoch_text

LEAST = 1e-9  # lower bound of the remaining epochs or seconds: avoids division by zero


class Milestones:
    """Tells from a run's tally what is due."""

    def __init__(self, config: TrainingConfig, positions: Callable[[], RoundPositions], tally: Tally):
        """positions: gives those of now, as they change with the number of replicas."""
        self._config, self._positions, self._tally = config, positions, tally

    @property
    def epoch(self) -> float:
        """Number of epochs trained, including the fraction of the current one."""
        return self._positions().epoch(self._tally.round)

    @property
    def nothing_left(self) -> str | None:
        """Reason why there is nothing left to train; None if there is."""
        config, tally, epoch = self._config, self._tally, self.epoch
        done = f"already at epoch {epoch_text(epoch)}"
        if epoch >= config.epochs:
            return f"{done}; --epochs {config.epochs} asks for no more"
        if tally.seconds_to_target is not None:
            return f"{done}; --target-accuracy {config.target_accuracy:g} is reached"
        if config.max_seconds is not None and tally.seconds >= config.max_seconds:
            most = f"--max-seconds {config.max_seconds:g}"
            return f"{done}, after {tally.seconds:.1f} s; {most} asks for no more"
        return None

    @property
    def is_complete(self) -> bool:
        """True if there is nothing left to train, and the last model is evaluated."""
        return self.nothing_left is not None and self._tally.evaluated_at == self._tally.round

    @property
    def evaluation_is_due(self) -> bool:
        """True if a stretch of `evaluation_epochs` has ended since the last evaluation."""
        return self._stretch(self._tally.round) > self._stretch(self._tally.evaluated_at)

    def _stretch(self, round: int) -> int:
        """Number of the stretch of `evaluation_epochs` in which a round is."""
        positions = self._positions()
        epoch, number = positions.at(round)
        share = number / positions.order.batches_per_epoch
        return int((epoch + share) / self._config.evaluation_epochs + LEAST)

    def next_stop(self, since: int) -> int:
        """Round to stop before: that of the next evaluation, or of the first checkpoint after `since`."""
        round, every = self._tally.round, self._config.checkpoint_rounds
        later = range(round + 1, self._positions().first_round(self._config.epochs))
        end = round + 1 + bisect_right(later, self._stretch(round), key=self._stretch)
        return end if every is None else min(end, since + every)

    def share_done(self, earlier: int, seconds_before: float, round: int, running_s: float) -> float:
        """Fraction, over at `round`, of the epochs or seconds that remained at the round `earlier`.

        seconds_before: of training, at the round `earlier`. running_s: seconds of training that the tally
        does not have yet.
        """
        config, epoch = self._config, self._positions().epoch
        shares = [(epoch(round) - epoch(earlier)) / max(LEAST, config.epochs - epoch(earlier))]
        if config.max_seconds is not None:
            trained = self._tally.seconds + running_s - seconds_before
            shares.append(trained / max(LEAST, config.max_seconds - seconds_before))
        return max(shares)
