"""The scheduler: replicas on streams, learning and synchronisation tasks, model averaging.

`LearningEngine` trains replicas of a `StepProgram`; `Trainer` adds data, evaluation and checkpoints.
"""

from scheduler.batches import BatchSource, DatasetBatches, ReadyBatch, ReadyRound, gathered
from scheduler.classifier import build_program
from scheduler.config import TrainingConfig
from scheduler.engine import LearningEngine
from scheduler.evaluation import Evaluation, Evaluator
from scheduler.inference import Classifier
from scheduler.options import SYNCS, Synchronisation
from scheduler.state import SchedulerState
from scheduler.step import StepProgram
from scheduler.stepping import Stepper
from scheduler.tally import TrainingResult
from scheduler.task_result import RoundResults, TaskResult
from scheduler.tensorbow_session import TensorBowSession
from scheduler.throughput import ThroughputTuning, TuningOptions
from scheduler.trainer import Trainer
from scheduler.tuner import Decision, Measure, Measurement, ReplicaTuner
from scheduler.tuning_result import TuningResult

__all__ = [
    "SYNCS",
    "BatchSource",
    "Classifier",
    "DatasetBatches",
    "Decision",
    "Evaluation",
    "Evaluator",
    "LearningEngine",
    "Measure",
    "Measurement",
    "ReadyBatch",
    "ReadyRound",
    "ReplicaTuner",
    "RoundResults",
    "SchedulerState",
    "StepProgram",
    "Stepper",
    "Synchronisation",
    "TaskResult",
    "TensorBowSession",
    "ThroughputTuning",
    "Trainer",
    "TrainingConfig",
    "TrainingResult",
    "TuningOptions",
    "TuningResult",
    "build_program",
    "gathered",
]
