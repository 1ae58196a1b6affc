"""All options of a training run, with their defaults and checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from scheduler.averaging.synchronisation import ON_NAN, REACTION, Synchronisation, default_tau
from scheduler.batches.keep_on_devices import ON_DEVICE
from scheduler.options import (
    MOMENTUM,
    NOT_NEGATIVE,
    PATH,
    POSITIVE,
    RATE,
    documents_options,
    option,
    options_of,
    read_options,
    same_option,
    shortened,
)
from scheduler.replicas.device_plans import MOST_STEPS, results_kept
from scheduler.replicas.replica_counts import replica_counts
from scheduler.training.configuration.optimizer_choice import (
    DEFAULT_RATES,
    OPTIMIZERS,
    OPTIONS,
    make_optimizer,
)
from scheduler.training.configuration.option_dependencies import (
    averages_nothing,
    ends_before_drops,
    ends_before_ssgd,
    never_restarts,
    no_dataset_files,
    no_given_weights,
    no_own_data,
    no_swap_on_cpus,
    no_tf32_on_cpus,
    only_cpus,
    optimizer_without_momentum,
    require_compatible,
    schedule_without_final_rate,
    single_replica,
    tau_averages_nothing,
)
from scheduler.training.configuration.option_kinds import (
    AUGMENTATION,
    AUTO,
    CLASS_WEIGHTS,
    COLUMN,
    COLUMNS,
    DEVICES,
    DROPS,
    EARLY_STOPPING,
    EPOCH_COUNT,
    EPOCHS,
    EVALUATE_EVERY,
    FINAL_RATE,
    FLATTENED_SIZES,
    FRACTION,
    IMAGE_SIZE,
    LABEL_SMOOTHING,
    METRIC,
    MIXUP,
    MODEL,
    NAME_PAIRS,
    OPTIONS_BY_NAME,
    PATTERNS,
    REPLICAS,
    SCHEDULES,
    TRACED_ROUNDS,
    WHOLE_EPOCHS,
)
from scheduler.training.configuration.synonyms import nearest_option
from scheduler.training.measures.classification_metrics import METRICS
from tensorbow.compiler.recompute import HOW, NEVER
from tensorbow.compiler.swap import HOW as WAYS_TO_SWAP
from tensorbow.data import DATASETS, SEQUENCES
from tensorbow.data.own_data import name_of_data
from tensorbow.data.splits import TASKS
from tensorbow.devices import DeviceName
from tensorbow.devices.gpu import COMPUTE
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import FLAG, Kind, number, whole
from tensorbow.models import ModelSource, find_model

NEWER: dict[str, Any] = {
    "optimizer": "momentum",
    "model_options": {},
    "optimizer_options": {},
    "tau": 1,
    "schedule": "piecewise",
}  # options that old checkpoints lack, where not None
DEFAULT_REPLICAS = 2  # on each device


@documents_options
@dataclass(frozen=True)
class TrainingConfig:
    """Options of a training run. The defaults do not depend on the machine.

    Runs with `replicas_per_device` "auto" are not reproducible. `steps_per_launch` None is measured for each
    number of replicas where rounds are launched as a whole, and 1 elsewhere. A resumed run may change
    `dispatch`, which `Synchronisation` describes. `compute` None keeps the devices' setting, see
    `tb.configure_gpus`. `data_on_device` "auto" takes at most half of the memory that the replicas leave free
    on GPUs, and none on CPU devices, which read the data set in place. It does not change results.
    """

    model: str = option(
        "lenet",
        "Model to train: a name, FILE.py:NAME or PACKAGE.MODULE:NAME; in a program also a class, a function "
        "(inputs, labels, training) or an instance.",
        MODEL,
        fixed=True,
    )
    model_options: Mapping[str, Any] = option(
        None, "Arguments of the model's constructor, by name.", OPTIONS_BY_NAME, shown="none", fixed=True
    )
    dataset: str | None = option(
        None,
        "Data set. digits comes with scikit-learn and needs no download.",
        choices=DATASETS,
        of_model=True,
        fixed=True,
    )
    data: str | None = option(
        None,
        "Data of your own: a .npz, .csv or .parquet file, a folder of pictures by class, or FILE.py:FUNCTION "
        "that returns (train, test) or (train, validation, test).",
        PATH,
        shown="--dataset",
        metavar="PATH",
        fixed=True,
    )
    target: str | None = option(
        None,
        "Column of a table, or array of a .npz file, that is to be predicted; of a table also several "
        "columns of numbers, separated by commas.",
        COLUMN,
        shown="target, label, class or y, whichever there is",
        metavar="COLUMN",
        fixed=True,
        ignored=no_own_data,
    )
    ignore_columns: tuple[str, ...] | None = option(
        None,
        "Columns of a table that are not given to the model, separated by commas, as numbers of customers.",
        COLUMNS,
        shown="none",
        metavar="COLUMN[,...]",
        fixed=True,
        ignored=no_own_data,
    )
    image_size: tuple[int, int] | None = option(
        None,
        "Size to which pictures are resized, as 28x28; those of a folder by default to that of the first.",
        IMAGE_SIZE,
        metavar="HxW",
        of_model=True,
        fixed=True,
        ignored=lambda run: "its examples are no pictures" if run.dataset in SEQUENCES else "",
    )
    validation_split: float | None = option(
        None,
        "Fraction of the training examples to hold out: each epoch ends with an evaluation on them, and on "
        "the test examples at its end only.",
        FRACTION,
        shown="none",
        fixed=True,
    )
    test_split: float = option(
        0.2,
        "Fraction of the examples to test with, for --data that has no test examples of its own.",
        FRACTION,
        fixed=True,
    )
    split_seed: int = option(0, "Seed of the held-out examples.", whole(0, (1 << 64) - 1), fixed=True)
    task: str = option(
        "auto",
        "What labels are: classes (classification), numbers to predict (regression), or auto: integers are "
        "classes, as are in a table whole numbers from 0 to 999, and floats numbers.",
        choices=TASKS,
        fixed=True,
    )
    augmentation: str | None = option(
        None,
        "Random changes of training pictures, separated by commas: flip, flip_vertical, crop:N (by up to N "
        "pixels), cutout:N (hides a square of N pixels), rotate:DEGREES, brightness:X, contrast:X, "
        "saturation:X, colour:X (all three), erase:P (hides a rectangle with probability P), or none.",
        AUGMENTATION,
        shown="the data set's",
        fixed=True,
    )
    class_weights: str | tuple[float, ...] | None = option(
        None,
        "Weight of each class in the training loss, as 1,2.5; or balanced: inverse to its examples.",
        CLASS_WEIGHTS,
        shown="all 1",
        metavar="balanced|W,W,...",
        fixed=True,
    )
    weights: str | None = option(
        None,
        "Weights to begin with, in all replicas: a safetensors file of a PyTorch model, whose names and "
        "layouts are converted, a model file or folder of an earlier run, or a folder of tensorbow export. A "
        "run that is resumed goes on with those of its checkpoint.",
        PATH,
        shown="random",
        metavar="PATH",
    )
    weights_skip: tuple[str, ...] = option(
        (),
        "Weights to leave out, as fc.*,head/*: names, or patterns with * and ?, of PyTorch's entries or of "
        "variables; these begin at random, as a layer for another number of classes.",
        PATTERNS,
        shown="none",
        metavar="NAME[,...]",
        ignored=no_given_weights,
    )
    weights_names: tuple[tuple[str, str], ...] = option(
        (),
        "Names in the file of --weights where they do not tell, as conv1=features.0,fc=classifier.6: of a "
        "scope or variable here, and of its module or entry there.",
        NAME_PAIRS,
        shown="found by names and shapes",
        metavar="NAME=NAME[,...]",
        ignored=no_given_weights,
    )
    weights_flattened: tuple[tuple[str, tuple[int, int, int]], ...] = option(
        (),
        "Height, width and channels of the images that a dense layer behind a flatten gets, by its kernel's "
        "name, as fc/kernel=7x7x64, where the graph does not tell: PyTorch flattens with channels first. "
        "1x1xN keeps the order of PyTorch's N features.",
        FLATTENED_SIZES,
        shown="found in the graph",
        metavar="NAME=HxWxC[,...]",
        ignored=no_given_weights,
    )
    data_dir: str | None = option(
        None,
        "Folder of the data set's files.",
        PATH,
        shown="environment variable TENSORBOW_DATA",
        metavar="DIR",
        ignored=no_dataset_files,
    )
    batch_size: int = option(
        None,
        "Examples per replica and step. A resumed run may change it only with --replicas-per-gpu auto; this "
        "restarts the tuning.",
        whole(1, (1 << 31) - 1),  # extents of shapes are below 2**31
        of_model=True,
        fixed=True,
    )
    replicas_per_device: int | tuple[int, ...] | Literal["auto"] = option(
        DEFAULT_REPLICAS,
        "Replicas on each device. One number for all devices, or one for each, such as 3,1; or auto: begin "
        "with one, measure while training, and add and remove replicas until the fastest number is known. "
        "auto is not reproducible: the number depends on timing.",
        REPLICAS,
        metavar="N[,N...]|auto",
        alias="replicas_per_gpu",
        fixed=True,
    )
    devices: tuple[str, ...] = option(
        ("cpu:0",), "Devices, separated by commas, such as cpu:0,cpu:1.", DEVICES, fixed=True
    )
    sync: str = same_option(
        Synchronisation,
        "sync",
        "With none, all replicas' models are saved, those after the first as model-replicaN.safetensors.",
        fixed=True,
    )
    tau: int = same_option(Synchronisation, "tau", fixed=True, ignored=tau_averages_nothing)
    alpha: float | None = same_option(Synchronisation, "alpha", ignored=averages_nothing)
    mu: float = same_option(Synchronisation, "mu", ignored=averages_nothing)
    outer_learning_rate: float = same_option(Synchronisation, "outer_learning_rate", ignored=single_replica)
    outer_momentum: float = same_option(Synchronisation, "outer_momentum", ignored=single_replica)
    exchange_dtype: str | None = same_option(
        Synchronisation, "exchange_dtype", fixed=True, ignored=single_replica
    )
    staleness: int = same_option(Synchronisation, "staleness", fixed=True, ignored=averages_nothing)
    ema: float | None = same_option(Synchronisation, "ema", "Its model is model-ema.safetensors.", fixed=True)
    dispatch: str = same_option(Synchronisation, "dispatch", ignored=single_replica)
    backup: int = same_option(Synchronisation, "backup")
    replica_mode: str = same_option(
        Synchronisation,
        "replica_mode",
        ignored=lambda run: "it is for GPUs" if only_cpus(run) else "",
    )
    ssgd_epoch: int | None = option(
        None,
        "Switch from --sync sma to ssgd after this epoch.",
        WHOLE_EPOCHS,
        shown="never",
        fixed=True,
        ignored=ends_before_ssgd,
    )
    clear_velocity: bool = same_option(Synchronisation, "clear_velocity", ignored=never_restarts)
    optimizer: str = option(None, "Optimiser of each replica.", choices=OPTIMIZERS, of_model=True, fixed=True)
    optimizer_options: tuple[tuple[str, Any], ...] = option(
        (),
        "Further options of the optimiser, NAME=VALUE pairs separated by commas, as beta2=0.99,epsilon=1e-6 "
        "of adam; see the class of tb.train.",
        OPTIONS,
        shown="none",
        metavar="NAME=VALUE[,...]",
        fixed=True,
    )
    momentum: float = option(
        0.9,
        "Momentum of each replica's optimiser.",
        MOMENTUM,
        ignored=optimizer_without_momentum,
    )
    learning_rate: float | None = option(None, "Learning rate of each replica.", RATE, shown=DEFAULT_RATES)
    schedule: str = option(
        None,
        "Course of the learning rate over all epochs: piecewise follows --learning-rate-drops; cosine, "
        "exponential and polynomial (a line) fall to --final-rate; one_cycle rises for 30 % of the run from "
        "a 25th and then falls. It means the same for any number of replicas. Averaging restarts only at the "
        "drops of piecewise.",
        choices=SCHEDULES,
        of_model=True,
    )
    learning_rate_drops: tuple[tuple[float, float], ...] = option(
        None,
        "Pairs EPOCH:FACTOR, separated by commas: after EPOCH the rate is FACTOR times the initial one, and "
        "averaging restarts. An epoch may be a fraction, as 0.5.",
        DROPS,
        of_model=True,
        ignored=ends_before_drops,
    )
    final_rate: float = option(
        0.01,
        "Learning rate at the end of a smooth schedule, as a fraction of --learning-rate.",
        FINAL_RATE,
        ignored=schedule_without_final_rate,
    )
    warmup_epochs: float = option(
        0.0,
        "Epochs in which the learning rate rises from 0 along a line, as 0.5.",
        EPOCH_COUNT,
        ignored=lambda run: "one_cycle has its own rise" if run.schedule == "one_cycle" else "",
    )
    label_smoothing: float = option(
        0.0,
        "Share of each label that the loss of training spreads over all classes, such as 0.1.",
        LABEL_SMOOTHING,
    )
    mixup: float = option(
        0.0,
        "Train on means of two pictures and their labels (mixup), whose weights are drawn for each step from "
        "the distribution Beta(X, X), such as 0.2.",
        MIXUP,
        metavar="X",
    )
    clip_norm: float | None = option(
        None,
        "Greatest norm of all gradients of a replica together: longer ones are scaled to it.",
        POSITIVE,
        shown="no limit",
    )
    clip_value: float | None = option(
        None, "Greatest absolute value of an element of a gradient.", POSITIVE, shown="no limit"
    )
    weight_decay: float = option(
        None,
        "Coefficient of L2 weight decay (on weights, not biases and batch norms).",
        NOT_NEGATIVE,
        of_model=True,
    )
    decay_all: bool = option(
        False,
        "Apply weight decay to biases and batch norms too.",
        FLAG,
        ignored=lambda run: "" if run.weight_decay else "the weight decay is 0",
    )
    epochs: float = option(
        None, "Passes over the training data; a fraction, as 0.8, ends within one.", EPOCHS, of_model=True
    )
    evaluate_every: float | None = option(
        None,
        "Epochs from one evaluation, with its line of metrics and checkpoint, to the next, as 0.25; the last "
        "is at the end. The figures of training in a line are means since the line before.",
        EVALUATE_EVERY,
        shown="1; with --target-accuracy 0.25",
    )
    max_seconds: float | None = option(
        None,
        "Stop after this many seconds of training, without evaluations and checkpoints.",
        POSITIVE,
        shown="no limit",
    )
    target_accuracy: float | None = option(
        None,
        "Stop when the test accuracy reaches this fraction.",
        Kind("a fraction in (0, 1], as 0.99", number(0, 1, above=True).read),
        shown="none",
    )
    seed: int = option(
        0, "Seed of initial weights, data order and random ops.", whole(0, (1 << 64) - 1), fixed=True
    )
    launch_ahead: int = option(
        2, "Number of unfinished launches at a time (with fcfs: tasks of a replica).", whole(1, 64)
    )
    steps_per_launch: int | None = option(
        None,
        "Rounds per launch, on CPU devices with native code, and on GPUs; does not change results.",
        whole(1, 4096),
        shown="as many as take 20 ms, 64 at most",
    )
    on_nan: str = option(
        "stop",
        "Reaction to a loss or gradient that is not finite: stop, or skip the update.",
        REACTION,
        choices=ON_NAN,
    )
    metrics: tuple[str, ...] = option(
        (),
        "Further metrics of classifiers in each evaluation, separated by commas: topK (such as top5), "
        "precision, recall, f1 and auc (means over the classes), and confusion, the table of labels and "
        "predictions at the end (confusion.csv, with matplotlib also confusion.png).",
        METRICS,
        shown="none",
        metavar="NAME[,...]",
    )
    early_stopping: tuple[Any, ...] | None = option(
        None,
        "METRIC:PATIENCE, as test_loss:3: stop after so many evaluations in a row without a better METRIC, "
        "one of the numbers of metrics.jsonl. Lower is better for losses and errors, else higher; "
        "METRIC:PATIENCE:MIN_DELTA asks for an improvement by more than MIN_DELTA; :min or :max at the end "
        "gives the direction.",
        EARLY_STOPPING,
        shown="never",
        metavar="METRIC:PATIENCE",
    )
    best_metric: str | None = option(
        None,
        "Number of metrics.jsonl, as test_loss, by which the best checkpoint is chosen, among equal ones by "
        "the lower loss; the central model of that time is model-best.safetensors. Losses and errors are "
        "better if lower, others if higher; METRIC:min or METRIC:max gives the direction.",
        METRIC,
        shown="accuracy, of the validation or else the test examples",
        metavar="METRIC",
    )
    compute: str | None = option(
        None,
        "Precision of float32 matmuls and convolutions: fp32; bf16 on GPUs, and on CPUs that have AVX-512 "
        "BF16; tf32 on GPUs.",
        choices=COMPUTE,
        shown=COMPUTE[0],
        ignored=no_tf32_on_cpus,
    )
    recompute: str = option(
        NEVER,
        "Intermediate values that are computed again for the gradient, not kept, where memory is short: "
        "cheap (of elementwise ops, normalisation and pooling), segments (of the forward pass), or smallest, "
        "the one of these with the smallest peak; does not change results.",
        choices=HOW,
    )
    swap: str = option(
        NEVER,
        "On GPUs: intermediate values that lie in the host's memory between their uses, where the GPU's is "
        "short: hidden (those whose copies take no longer than what is computed meanwhile, by estimates), or "
        "smallest, which waits for copies where that frees more; does not change results.",
        choices=WAYS_TO_SWAP,
        ignored=no_swap_on_cpus,
    )
    data_on_device: str = option(
        "auto",
        "Keep the data set on the devices and make batches there; auto: if half of the memory will do.",
        choices=ON_DEVICE,
    )
    output: str | None = option(
        None,
        "Folder for configuration, metrics, checkpoints and the final model.",
        PATH,
        shown="runs/MODEL-DATASET, with a number appended if it exists",
        metavar="DIR",
        of_one_run=True,
    )
    resume: str | None = option(
        None,
        "Resume from the newest checkpoint of --output (auto), or from a checkpoint file or folder, with the "
        "options saved there and those given now.",
        PATH,
        shown="no",
        metavar="auto|PATH",
        of_one_run=True,
    )
    checkpoint_rounds: int | None = option(
        None, "Also write a checkpoint every N rounds.", whole(1, 1 << 40), shown="after each epoch only"
    )
    keep_checkpoints: int = option(
        2,
        "Number of newest checkpoints to keep. The best one (by test accuracy) and the last one before any "
        "divergence (losses after it were finite, and on average at most twice the loss of random guessing) "
        "are kept in addition. Each holds every replica and z (27 MB with two replicas of LeNet).",
        whole(1, 1 << 40),
    )
    tensorboard: bool = option(
        False,
        "Write figures, histograms of weights and the step's graph to the folder tensorboard of --output, "
        "for tensorboard --logdir; needs tensorbow[tensorboard].",
        FLAG,
    )
    trace: str | None = option(
        None,
        "Write a timeline of all streams as a Chrome trace, for https://ui.perfetto.dev; FILE.gz is "
        "compressed. On CPU devices with native code a span is a launch of several rounds of one or more "
        "replicas, with their averaging; with --steps-per-launch 1 it is one round.",
        PATH,
        shown="none",
        metavar="FILE",
        of_one_run=True,
    )
    trace_rounds: tuple[int, int] | None = option(
        None,
        "Trace only rounds A to B - 1, counted from 0.",
        TRACED_ROUNDS,
        shown="the run's first 100",
        metavar="A:B",
        of_one_run=True,
    )

    def __post_init__(self) -> None:
        options = options_of(self)
        source = find_model(options["model"].read(self.model))
        if self.data is not None and self.dataset is not None:
            raise InvalidArgumentError(
                f"data: expected without dataset {self.dataset}; leave one of them out"
            )
        if self.schedule is None and self.learning_rate_drops:
            object.__setattr__(self, "schedule", "piecewise")
        for name, declared in options.items():
            if (
                declared.of_model
                and getattr(self, name) is None
                and not (self.data is not None and name in ("dataset", "image_size"))
            ):
                default = getattr(source.defaults, name)
                if name == "learning_rate_drops" and self.learning_rate is None:
                    default = source.defaults.drops_of(
                        self.dataset if isinstance(self.dataset, str) else None
                    )
                object.__setattr__(self, name, default)
        read_options(self)
        object.__setattr__(self, "tau", default_tau(self.sync) if self.tau is None else self.tau)
        object.__setattr__(self, "model_options", source.read_options(self.model_options or {}))
        self._check_counts()
        make_optimizer(self.optimizer, 1.0, self.momentum, dict(self.optimizer_options))
        require_compatible(self)

    def _check_counts(self) -> None:
        """Checks that there is one count per device; replaces equal counts by one number."""
        counts = self.replicas_per_device
        if isinstance(counts, tuple):
            if len(counts) != len(self.devices):
                given = ",".join([*map(str, counts[:20]), *(["..."] if len(counts) > 20 else [])]) or "none"
                raise InvalidArgumentError(
                    f"replicas_per_device: expected one number, or one for each of {len(self.devices)} "
                    f"devices, got {given}"
                )
            if len(set(counts)) == 1:
                object.__setattr__(self, "replicas_per_device", counts[0])

    @property
    def source(self) -> ModelSource:
        """The model, before it is made."""
        return find_model(self.model)

    @property
    def data_name(self) -> str:
        """Short name of the data, for folders and tables."""
        return str(self.dataset) if self.data is None else name_of_data(self.data)

    @property
    def evaluation_epochs(self) -> float:
        """Epochs from one evaluation to the next: `evaluate_every`, or its default."""
        return self.evaluate_every or (1.0 if self.target_accuracy is None else 0.25)

    @property
    def tunes(self) -> bool:
        """True if the number of replicas is tuned during training."""
        return self.replicas_per_device == AUTO

    @property
    def replicas(self) -> int:
        """Number of replicas on all devices; with "auto" the initial one."""
        return sum(self.replica_counts)

    @property
    def replica_counts(self) -> tuple[int, ...]:
        """Number of replicas on each device; with "auto" the initial ones."""
        if isinstance(self.replicas_per_device, str):
            return (1,) * len(self.devices)
        return replica_counts(self.replicas_per_device, len(self.devices))

    @property
    def synchronisation(self) -> Synchronisation:
        """Options of synchronisation, without `ssgd_from`, which depends on the data."""
        names = options_of(Synchronisation).keys() & options_of(self).keys()
        if only_cpus(self):
            names -= {"replica_mode"}
        return Synchronisation(**{name: getattr(self, name) for name in names})

    @property
    def device_kinds(self) -> set[str | None]:
        """Kinds of the devices, such as CPU."""
        return {DeviceName.parse(name).kind for name in self.devices}

    @property
    def batches_ahead(self) -> int:
        """Batches held ready for each replica; more with `fcfs`, where slow replicas may hold some."""
        return self.launch_ahead * (2 if self.dispatch == "fcfs" else 1) + 1

    @property
    def results_kept(self) -> int:
        """Number of each replica's results that are kept in memory."""
        return results_kept(self.launch_ahead, self.steps_per_launch or MOST_STEPS)

    def synchronisation_for(self, first_round: Callable[[int], int]) -> Synchronisation:
        """Options of synchronisation with `ssgd_epoch` converted to a round. first_round: epoch -> round."""
        if self.ssgd_epoch is None:
            return self.synchronisation
        return replace(self.synchronisation, ssgd_from=first_round(self.ssgd_epoch))

    def to_dict(self) -> dict[str, Any]:
        """The options as plain values, for YAML and JSON."""
        values = {name: _plain(getattr(self, name)) for name in options_of(self)}
        values["model"] = self.source.name
        values["model_options"] = {name: _plain(value) for name, value in self.model_options.items()}
        for name in ("optimizer_options", "weights_names"):
            values[name] = dict(getattr(self, name))
        values["weights_flattened"] = {name: list(size) for name, size in self.weights_flattened}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingConfig:
        """Inverse of `to_dict`. Raises InvalidArgumentError for unknown names or invalid values."""
        known = options_of(cls)
        unknown = sorted(set(values) - known.keys())
        if unknown:
            shown = ", ".join(shortened(name) for name in unknown[:5])
            near = nearest_option(str(unknown[0]), known)
            raise InvalidArgumentError(
                f"unknown option {shown}; "
                + (f"did you mean {near}?" if near else "`tensorbow train --help` lists all options")
            )
        return cls(**values)

    def differences(self, saved: Mapping[str, Any]) -> list[str]:
        """Lists the fixed options that differ in a saved configuration, which is then of another run.

        Options that older versions lack count as their defaults. With `auto` replicas the batch size may
        differ: a change starts a new tuning.
        """
        mine, before = self.to_dict(), completed(saved)
        fixed = [name for name, declared in options_of(self).items() if declared.fixed]
        pairs = [(name, before[name], mine[name]) for name in fixed if name != "model_options"]
        options = [before["model_options"], mine["model_options"]]
        names = dict.fromkeys(name for each in options for name in each) if pairs[0][1] == pairs[0][2] else ()
        pairs += [(f"model.{name}", *(each.get(name) for each in options)) for name in names]
        return [
            f"{name} was {shortened(was)}, is {now!r}"
            for name, was, now in pairs
            if was != now and not (self.tunes and name == "batch_size")
        ]


def completed(saved: Mapping[str, Any]) -> dict[str, Any]:
    """A saved configuration with the options that its version did not have yet, at their defaults."""
    usual = {name: declared.default for name, declared in options_of(TrainingConfig).items()}
    written = TrainingConfig().to_dict()  # tuples are lists or dictionaries there
    plain = {name: written[name] if isinstance(value, tuple) else value for name, value in usual.items()}
    return {**plain, **NEWER, **saved}


def _plain(value: Any) -> Any:
    """A value with lists instead of tuples, for YAML and JSON."""
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
