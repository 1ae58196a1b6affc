"""Scheduler: trains replicas on streams and keeps them together by model averaging or gradient averaging.

`LearningEngine` trains replicas of a `StepProgram`; `Trainer` adds data, evaluation and checkpoints.
"""

from scheduler.averaging.synchronisation import SYNCS, Synchronisation
from scheduler.batches.sources import BatchSource, DatasetBatches, ReadyBatch, ReadyLaunch, gathered
from scheduler.decisions.replica_tuner import Decision, Measure, Measurement, ReplicaTuner
from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.results import RoundResults, TaskResult
from scheduler.engine.stepper import Stepper
from scheduler.replicas.step_program import StepProgram
from scheduler.session import TensorBowSession
from scheduler.sweeps.sweeping import SweepResult, sweep
from scheduler.training.callbacks import Callback, EarlyStopping, RoundReport, TrainingRun
from scheduler.training.classifier_step import build_program
from scheduler.training.config import TrainingConfig
from scheduler.training.ensemble import Ensemble
from scheduler.training.evaluation import Evaluation, Evaluator
from scheduler.training.fitting import FittedModel, fit
from scheduler.training.tally import TrainingResult
from scheduler.training.tensorboard import TensorBoard
from scheduler.training.throughput_tuning import ThroughputTuning, TuningOptions
from scheduler.training.trained_model import TrainedModel, load_model
from scheduler.training.trainer import Trainer
from scheduler.training.tuning_result import TuningResult
from scheduler.workers.find import worker_group
from scheduler.workers.group import WorkerGroup

__all__ = [
    "SYNCS",
    "BatchSource",
    "Callback",
    "DatasetBatches",
    "Decision",
    "EarlyStopping",
    "Ensemble",
    "Evaluation",
    "Evaluator",
    "FittedModel",
    "LearningEngine",
    "Measure",
    "Measurement",
    "ReadyBatch",
    "ReadyLaunch",
    "ReplicaTuner",
    "RoundReport",
    "RoundResults",
    "StepProgram",
    "Stepper",
    "SweepResult",
    "Synchronisation",
    "TaskResult",
    "TensorBoard",
    "TensorBowSession",
    "ThroughputTuning",
    "TrainedModel",
    "Trainer",
    "TrainingConfig",
    "TrainingResult",
    "TrainingRun",
    "TuningOptions",
    "TuningResult",
    "WorkerGroup",
    "build_program",
    "fit",
    "gathered",
    "load_model",
    "sweep",
    "worker_group",
]
