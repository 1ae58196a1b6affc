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
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.measures.tally import TrainingResult
from scheduler.training.measures.tuning_result import TuningResult
from scheduler.training.models.classifier_step import build_program
from scheduler.training.models.ensemble import Ensemble
from scheduler.training.models.evaluation import Evaluation, Evaluator
from scheduler.training.models.trained_model import TrainedModel, load_model
from scheduler.training.running.callbacks import Callback, EarlyStopping, RoundReport, TrainingRun
from scheduler.training.running.fitting import FittedModel, fit
from scheduler.training.running.tensorboard import TensorBoard
from scheduler.training.running.trainer import Trainer
from scheduler.training.tuning.throughput_tuning import ThroughputTuning, TuningOptions
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
