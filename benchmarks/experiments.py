"""Table of the experiments that `run_all.py` runs and `results_page.py` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
THESIS = "TensorBow (Budea, 2019)"
CROSSBOW = "Crossbow (VLDB 2019)"
TITLES = {"logreg": "logistic regression", "lenet": "LeNet", "fast_resnet": "FastResNet"}  # of models
TITLES |= {f"resnet{layers}": f"ResNet-{layers}" for layers in (8, 9, 14, 20, 32, 44, 56, 110)}


def case_of(row: Mapping[str, Any]) -> str:
    """Model and batch size, in words."""
    return f"{TITLES[row['model']]} b={row['batch_size']}"


@dataclass(frozen=True)
class Experiment:
    """Script that takes `--small` and `--output` and writes `<name>.json` and `<name>.png`.

    shows: heading. measures: sentence on the measured quantities and the method. paper: paper and figure that
    the experiment reproduces; empty for the project's own. concludes: the paper's conclusion, where known.
    data: takes `--data`, a folder with MNIST. alone: not run by `run_all.py`. cpu_only: reason why it cannot
    measure GPUs, if it cannot. most_devices: that `--devices` may list. thesis: takes `--thesis`.
    """

    name: str
    shows: str
    measures: str
    paper: str = ""
    concludes: str = ""
    data: bool = False
    alone: bool = False
    cpu_only: str = ""
    most_devices: int = 1
    thesis: bool = False

    @property
    def script(self) -> Path:
        """Path of the script."""
        return FOLDER / f"{self.name}.py"


EXPERIMENTS = (
    Experiment(
        "cpu_floors",
        "Training rates beside PyTorch and JAX",
        "images per second of training on all cores, two replicas, beside the best setting of "
        "PyTorch and JAX, all settings of a case in one run and in turn. A floor is a ratio to be reached, a "
        "stretch is a more ambitious one.",
        cpu_only="gpu_replicas.py has the contestants on a GPU",
    ),
    Experiment(
        "against_commit",
        "Training rates beside an earlier commit",
        "images per second of two replicas, and of a session's steps, of this code and of an earlier commit, "
        "in turn; the figure is the median ratio of windows beside each other.",
        alone=True,
        cpu_only="gpu_first_hour.py measures GPUs",
    ),
    Experiment(
        "member_sweep",
        "Sweep of 64 small networks beside PyTorch and JAX",
        "steps of members per second of independent networks of 784-128-10 units (b=16) on all cores, beside "
        "sequential and vmapped training by PyTorch and JAX, all in turn in one run.",
        cpu_only="its contestants share the cores",
    ),
    Experiment(
        "members_at_once",
        "Sweep by members that train side by side",
        "steps of members per second in the pool of a sweep (digits, b=16), by the number of members that "
        "train at once.",
        cpu_only="its numbers of members are those of the cores",
    ),
    Experiment(
        "sweep_cost",
        "Cost of a member of a sweep beside a PyTorch script",
        "milliseconds per member of `tensorbow sweep` with networks of 784-128-10 units (digits, 10 epochs, "
        "b=16), whole process, beside one PyTorch script per member, in turn in one run.",
        cpu_only="its scripts use the cores",
    ),
    Experiment(
        "ablation",
        "Gain of each mechanism of the native backend",
        "time of a round without a mechanism over the time with all of them, two replicas averaged every "
        "round, one step per launch, all in turn in one run; 1.00 means no gain, below 1 a loss.",
        cpu_only="its mechanisms are those of native code",
    ),
    Experiment(
        "round_profile",
        "Time of a round by its parts",
        "microseconds of a round of two replicas, and the parts of both cores' time: native steps (timed in "
        "one thread alone), batches and calls, averaging (the streams' additional time with it), the "
        "scheduler's thread, and the rest, waiting or unused cores. K: steps per launch.",
        cpu_only="its parts are those of the cores; see gpu_first_hour.py",
    ),
    Experiment(
        "table_5_1",
        "Size, ops and memory of the models",
        "parameters, operations and planned memory of each model's compiled training step, from its plan.",
        f"{THESIS}, table 5.1",
        "LeNet 4.24 MB and ResNet-32 1.79 MB (apparently of 2^20 bytes), logistic regression "
        "0.0314 MB (of 10^6)",
    ),
    Experiment(
        "fig_4_2",
        "Best fit with coalescing against one driver call per tensor",
        "time of a training step's allocations with each allocator, replayed from a real trace at simulated "
        "costs of a driver call, and the ratio of the step times, driver calls over best fit.",
        f"{THESIS}, figure 4.2",
        "best fit with coalescing is 4 times as fast",
    ),
    Experiment(
        "learning_rates",
        "The learning rate of every setting",
        "mean epochs of LeNet to 99 % on MNIST at rates of one grid, searched by one rule for both sides, "
        "on seeds that the other experiments do not use.",
        data=True,
    ),
    Experiment(
        "fig_5_1_to_5_3",
        "Batch size against time and epochs to an accuracy",
        "time and epochs of LeNet with one replica to 99 % on MNIST, each batch size at its own rate.",
        f"{THESIS}, figures 5.1 to 5.3",
        "ever larger batches hinder the convergence of a model (abstract)",
        data=True,
        thesis=True,
    ),
    Experiment(
        "fig_5_4_and_5_5",
        "Time to 99 % beside PyTorch and JAX, by replicas and batch size",
        "time and epochs of LeNet to 99 % on MNIST; peers train one model on all cores in the way that is "
        "quickest for the batch size. `no waiting` is a bound: a peer's epochs at the rate of two processes "
        "that share the batch and never wait for one another.",
        f"{THESIS}, figures 5.4 and 5.5",
        data=True,
    ),
    Experiment(
        "one_cycle",
        "Time to 99 % with a one-cycle learning rate",
        "time and epochs of LeNet to 99 % on MNIST where the learning rate rises and falls over 0.9 epochs, "
        "for both sides; the peak rates are tuned by one rule.",
        data=True,
    ),
    Experiment(
        "defaults",
        "LeNet to 99 % with the default options",
        "time and epochs of LeNet to 99 % on MNIST with the options that `tensorbow train` chooses by "
        "itself, beside the best of a grid of rates and courses.",
        data=True,
        cpu_only="the defaults were chosen on CPUs",
    ),
    Experiment(
        "bf16_accuracy",
        "Accuracy of LeNet trained in bf16",
        "test accuracy of LeNet after eight epochs of digits and two of MNIST (two replicas, b=32), with "
        "products of bf16 and of fp32, from the same initial values and batches.",
        data=True,
        cpu_only="the rounding is that of the CPU's kernels",
    ),
    Experiment(
        "cifar10_course",
        "FastResNet on CIFAR-10 with augmentation",
        "test accuracy by epoch and seconds of training of two replicas of b=32, with flips, crops and a "
        "one-cycle learning rate.",
        alone=True,
        cpu_only="its run is one of the CPU",
    ),
    Experiment(
        "zoo",
        "Accuracy of the models with their default options",
        "test accuracy of models whose data set needs no download, at the end of `tensorbow train`: two "
        "replicas, on digits, text or words.",
        alone=True,
        cpu_only="the defaults were chosen on CPUs",
    ),
    Experiment(
        "fig_5_6_to_5_9",
        "Throughput against replicas",
        "images per second by number of replicas, on one CPU device and on two virtual ones, all settings of "
        "a case in turn.",
        f"{THESIS}, figures 5.6 to 5.9",
        most_devices=4,
        thesis=True,
    ),
    Experiment(
        "fig_5_10",
        "Throughput and time per step against batch size",
        "images per second and time of a round by batch size, with one and two replicas, and of the peers "
        "with their best settings, in turn.",
        f"{THESIS}, figure 5.10",
        thesis=True,
    ),
    Experiment(
        "fig_5_11_and_5_12",
        "Cost of synchronisation",
        "time of a round of two replicas beyond that of independent ones, all methods in turn.",
        f"{THESIS}, figures 5.11 and 5.12",
        thesis=True,
    ),
    Experiment(
        "fig_5_13",
        "Throughput over virtual devices",
        "images per second of equally many averaged replicas on 1, 2 and 4 virtual CPU devices, in turn.",
        f"{THESIS}, figure 5.13",
        most_devices=4,
        thesis=True,
    ),
    Experiment(
        "synchronisers",
        "SMA against S-SGD, EASGD and independent replicas",
        "time and epochs of LeNet to 99 % on MNIST with four replicas of batch size 16, and the accuracy at "
        "the end, each method at its own rate.",
        CROSSBOW,
        "SMA avoids the loss of statistical efficiency that S-SGD has with the larger batches of more "
        "replicas, and shortens training (abstract)",
        data=True,
    ),
    Experiment(
        "tau",
        "Averaging every tau rounds",
        "time, epochs and rate of LeNet to 99 % on MNIST with four replicas of batch size 16, by the rounds "
        "between two averagings.",
        CROSSBOW,
        data=True,
    ),
    Experiment(
        "auto_tuner",
        "The auto-tuner's number of replicas",
        "images per second with fixed numbers of replicas and of the tuned run, in turn, "
        "after the tuner's decision; the last ratios are relative to the best fixed number.",
        f"{CROSSBOW}, section 4",
        "replicas are added to a GPU as long as throughput grows, and so their number is tuned to the "
        "greatest throughput (abstract and public description)",
    ),
    Experiment(
        "null_steps",
        "Overhead of steps that compute nothing",
        "time of a session call that computes nothing or fetches scalars, and the scheduler's processor time "
        "per learning task on null devices.",
        "TensorFlow (OSDI 2016), section 6.2",
        "steps that compute nothing show the cost of coordinating workers, which grows with their number",
        cpu_only="it measures the host; see gpu_first_hour.py",
    ),
    Experiment(
        "queue_rate",
        "Elements through queues",
        "elements a second that steps enqueue and dequeue in batches, from one thread, by kind of queue.",
        cpu_only="queues live on the host",
    ),
    Experiment(
        "dynamic_executor",
        "Loops and recurrent networks in the dynamic mode",
        "microseconds of an iteration of a loop of 10,000 additions, compiled and dynamic; of a null op "
        "in a graph of 10,000; and of a step of an LSTM whose length is fed beside one of known length.",
        "TensorFlow (white paper, 2015), section 4.4",
        cpu_only="the dynamic executor's own costs are those of the host",
    ),
    Experiment(
        "convnets",
        "The convolutional networks of table 1 beside PyTorch",
        "milliseconds of a training step and images a second of AlexNet, Overfeat, OxfordNet, GoogLeNet and "
        "Inception-v3 on two cores, in turn with PyTorch.",
        "TensorFlow (OSDI 2016), table 1",
        "on one GPU TensorFlow's steps take about as long as Torch's, within 6 %",
        cpu_only="gpu_replicas.py measures GPUs",
    ),
    Experiment(
        "quantised_inference",
        "Inference with 8-bit integers",
        "images a second of LeNet and ResNet-32, exported with convolutions and matrix products of 8-bit "
        "integers and of float32, by batch size, and their accuracy.",
        "TensorFlow (OSDI 2016), section 5",
        cpu_only="GPUs have no kernels of quantised products here",
    ),
    Experiment(
        "asynchronous",
        "Asynchronous workers beside synchronous replicas",
        "steps per second and accuracy of four workers around a parameter shard, in processes of their own, "
        "beside four replicas that average gradients in one; and the longest times between two steps while "
        "workers are killed, of all others together and of one of them.",
        "TensorFlow (OSDI 2016), section 4.4",
        "asynchronous workers keep up a high throughput in the presence of stragglers",
        alone=True,
        cpu_only="its workers share the cores",
    ),
    Experiment(
        "worker_faults",
        "Faults of workers",
        "seconds from a fault of one of two workers to the end of all processes of the job, what the job "
        "says, and runs whose workers are killed at random moments.",
        alone=True,
        cpu_only="its workers share the cores",
    ),
    Experiment(
        "cluster_null_steps",
        "Null steps over parameter tasks",
        "milliseconds of a step in which every worker fetches parameters and sends updates, over processes "
        "of one machine; medians.",
        "TensorFlow (OSDI 2016), figure 7",
        "a step of scalars grows slowly with the workers, dense ones with their bytes and the workers, "
        "sparse ones do not depend on the size of the model",
        cpu_only="it measures the host",
    ),
    Experiment(
        "loops_over_tasks",
        "Loops over tasks",
        "microseconds of an iteration of a loop whose ops are on one, two or three tasks, over processes of "
        "one machine.",
        "TensorFlow (white paper, 2015), section 4.4",
        cpu_only="it measures the host",
    ),
    Experiment(
        "language_model",
        "Language model with a large vocabulary",
        "words a second of an LSTM-512-512 with the softmax over 40,000 words and over a sample of them, "
        "whose tables are cut into parts on parameter tasks or on virtual devices of one process; and "
        "perplexity during training.",
        "TensorFlow (OSDI 2016), figure 9",
        "a second parameter task speeds up the full softmax; the sampled softmax is faster by far, as it "
        "computes and sends less",
        cpu_only="its processes share the cores",
    ),
    Experiment(
        "backup_workers",
        "Backup workers against stragglers",
        "milliseconds of a step of S-SGD that takes the first 8 gradients of 8 and more replicas, some of "
        "them late; replicas sleep in place of computing, as two cores do not run so many at once.",
        "TensorFlow (OSDI 2016), figure 8",
        "backup workers shorten the step, most of all the first ones; beyond some number they cost more than "
        "they gain",
        cpu_only="its replicas sleep",
    ),
    Experiment(
        "worker_exchange",
        "Workers over MPI beside one process",
        "rate of LeNet (b=16, sma) with two workers of one replica each over one process with two, in turn, "
        "by memory that they share, by pieces that MPI sends and by its sums of whole vectors, and the time "
        "of an exchange of 4 MiB over that of `MPI_Allreduce` alone, in quick and slow turns of that.",
        alone=True,
        cpu_only="its workers share the cores",
    ),
    Experiment(
        "scaling_model",
        "Model of many workers",
        "milliseconds of a round of 1, 2, 4 and 8 workers over MPI, as measured and as a model predicts them "
        "by costs of one and two workers; and its curves up to 1,024 workers.",
        alone=True,
        cpu_only="its workers share the cores",
    ),
    Experiment(
        "thin_link",
        "DiLoCo over a thin link",
        "rounds per second of LeNet (b=16, tau 200) with two workers in network namespaces over a link of "
        "100 Mbit/s over those of the unshaped link, in turn, and accuracy over both.",
        data=True,
        alone=True,
        cpu_only="its workers share the cores",
    ),
    Experiment(
        "replicator_overhead",
        "Overhead of a Replicator over the plain session",
        "time of LeNet's step (b=16, one replica) by each kind of call, in turn, and median ratio to the "
        "plain session in the same turn.",
        cpu_only="it measures the host",
    ),
    Experiment(
        "replicator_launches",
        "Rounds per launch under a Replicator",
        "images per second of `replicator.train` with one and several rounds a launch, and of the engine "
        "of `tensorbow train`, in turn, and median ratios in the same turn.",
    ),
    Experiment(
        "compile_time",
        "Time to the first step",
        "seconds by phase in a fresh process after its imports, with an empty and with a filled code cache.",
        cpu_only="its phases are those of native code",
    ),
    Experiment(
        "resnet_against_torch",
        "The loss curve of ResNet-32 beside PyTorch's",
        "largest and mean distance of the smoothed loss of four runs from the mean of four PyTorch runs on "
        "CIFAR-10, from the same initial values and batches, beside the distance of these from one another.",
        alone=True,
    ),
    Experiment(
        "gpu_replicas",
        "Replicas on one GPU beside PyTorch and JAX",
        "images per second of training on one GPU by number of replicas, all contestants of a case in turn.",
        alone=True,
    ),
)


def named(name: str) -> Experiment:
    """The experiment of that name; a nameless one for scripts that are not listed."""
    return next((one for one in EXPERIMENTS if one.name == name), Experiment(name, "", ""))
