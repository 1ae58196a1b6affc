"""The experiments: one table, for `run_all.py`, which runs them, and `report.py`, which sums them up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
THESIS = "TensorBow (Budea, 2019)"
CROSSBOW = "Crossbow (VLDB 2019)"
OWN = "this project"
OSDI = "TensorFlow (OSDI 2016)"
TITLES = {"logreg": "logistic regression", "lenet": "LeNet"}  # of models
TITLES |= {f"resnet{layers}": f"ResNet-{layers}" for layers in (8, 14, 20, 32, 44, 56, 110)}


@dataclass(frozen=True)
class Experiment:
    """A script that takes `--small` and `--output` and writes `<name>.json` and `<name>.png`.

    shows: in a line. paper: where the experiment comes from, and its figure there; what it concludes is in
    `report_papers.py`. data: whether it takes `--data`, a folder with MNIST.
    """

    name: str
    shows: str
    paper: str
    data: bool = False

    @property
    def script(self) -> Path:
        """Its file."""
        return FOLDER / f"{self.name}.py"


EXPERIMENTS = (
    Experiment("cpu_floors", "training rates beside PyTorch and JAX, all settings in one run", OWN),
    Experiment("round_profile", "where the time of a round goes", OWN),
    Experiment("table_5_1", "size, ops and memory of the models", f"{THESIS}, table 5.1"),
    Experiment(
        "fig_4_2",
        "best fit with coalescing against one driver call per tensor",
        f"{THESIS}, figure 4.2",
    ),
    Experiment(
        "learning_rates",
        "the learning rate of every setting, by one rule for both sides",
        OWN,
        data=True,
    ),
    Experiment(
        "fig_5_1_to_5_3",
        "batch size against time and epochs to an accuracy",
        f"{THESIS}, figures 5.1 to 5.3",
        data=True,
    ),
    Experiment(
        "fig_5_4_and_5_5",
        "time and epochs to 99 % for LeNet on MNIST, by replicas and batch size",
        f"{THESIS}, figures 5.4 and 5.5",
        data=True,
    ),
    Experiment(
        "fig_5_6_to_5_9",
        "throughput against replicas, on one device and on two virtual ones",
        f"{THESIS}, figures 5.6 to 5.9",
    ),
    Experiment("fig_5_10", "throughput and time per step against batch size", f"{THESIS}, figure 5.10"),
    Experiment("fig_5_11_and_5_12", "what synchronisation costs", f"{THESIS}, figures 5.11 and 5.12"),
    Experiment("fig_5_13", "throughput over virtual devices", f"{THESIS}, figure 5.13"),
    Experiment(
        "synchronisers",
        "SMA against S-SGD, EASGD and independent replicas",
        CROSSBOW,
        data=True,
    ),
    Experiment("tau", "the effect of averaging every tau rounds", CROSSBOW, data=True),
    Experiment(
        "auto_tuner", "the number of replicas it chooses against fixed ones", f"{CROSSBOW}, section 4"
    ),
    Experiment("null_steps", "what a step costs that computes nothing", f"{OSDI}, section 6.2"),
    Experiment("replicator_overhead", "what a Replicator costs beside the plain session", OWN),
    Experiment("compile_time", "from the ready process to the first step, cold and cached", OWN),
)
