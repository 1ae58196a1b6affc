"""A program that trains asynchronously: workers and a shard are killed on the way. Writes what came of it.

A second argument chooses another part: `short` has a few steps in which nobody dies, `bounded` a slow worker
that the other may not leave behind, `hanging` one that stops, `guarded` others that try to get in.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import tensorbow as tb


def batches(context: Any) -> Any:
    random = np.random.default_rng(context.replica_id)
    while True:
        images = random.normal(size=(16, 4)).astype(np.float32)
        yield images, (images[:, 0] > 0).astype(np.int32)


def few(context: Any) -> Any:
    stream = batches(context)
    return [next(stream) for _ in range(3)]


def failing(context: Any) -> Any:
    stream = batches(context)
    yield next(stream)
    if context.replica_id == 1:
        raise ValueError("no more of these")
    yield from stream


def main(folder: Path) -> None:
    said: dict[str, Any] = {}
    replicator = tb.MultiWorkerAsyncReplicator(3, 2, staleness=4, folder=folder, save_every=20)

    def step(images: Any, labels: Any) -> Any:
        optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.05, 0.9))
        counter = tb.get_variable("counter", [], tb.int64, initializer="zeros", trainable=False)
        hidden = tb.layers.dense(images, 8, activation=tb.nn.relu, name="hidden")
        loss = tb.losses.sparse_softmax_cross_entropy(labels, tb.layers.dense(hidden, 2, name="logits"))
        return loss, optimizer.minimize(loss, global_step=counter)

    losses = []
    for number, (loss, _) in enumerate(replicator.train(step, batches, 600)):
        losses.append(float(loss[0]))
        processes = replicator._processes
        if number == 0:
            numbers = processes.process_numbers
        if number == 100:
            os.kill(numbers[1], signal.SIGKILL)
        if number == 300:
            os.kill(numbers[3], signal.SIGKILL)
    said["losses"] = [sum(losses[:20]) / 20, sum(losses[-20:]) / 20, len(losses)]
    said["by worker"] = replicator.steps_by_worker
    values = replicator.central_values()
    said["counter"] = int(values["counter"])
    path = folder / "saved.safetensors"
    said["saved"] = replicator.save(path)

    other = tb.MultiWorkerAsyncReplicator(2)
    said["restored"] = other.restore(path)
    said["ended"] = len([*other.train(step, few)])  # each worker has three batches
    said["counter after"] = int(other.central_values()["counter"])
    again = tb.MultiWorkerAsyncReplicator(2, folder=folder)  # as a program that was begun again
    said["pushes"] = again.restore(folder)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        said["went on"] = len([*again.train(step, few, 100)])
    said["fewer"] = [str(each.message) for each in warned if each.category is UserWarning]
    said["counter then"] = int(again.central_values()["counter"])
    said["folders"] = sorted(path.name for path in folder.glob("shard-*"))
    try:
        list(other.train(step, failing, 100))
    except tb.errors.AbortedError as error:
        said["error"] = str(error)
    (folder / "said.json").write_text(json.dumps(said))


def trained(replicator: Any) -> Any:
    """A small step."""

    def step(images: Any, labels: Any, *others: Any) -> Any:
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
        loss = tb.losses.sparse_softmax_cross_entropy(labels, tb.layers.dense(images, 2, name="logits"))
        return loss, optimizer.minimize(loss), [tb.identity(other) for other in others]

    return step


def short(folder: Path) -> None:
    """Two workers do a few steps, and nobody dies. Tells on which addresses their processes listen."""
    replicator = tb.MultiWorkerAsyncReplicator(2, folder=folder / "shards")
    losses, addresses = [], set[str]()
    for loss, *_ in replicator.train(trained(replicator), batches, 40):
        if not losses:
            addresses = addresses_listened_on(descendants())
        losses.append(float(loss[0]))
    said = {"losses": losses, "by worker": replicator.steps_by_worker, "listens": sorted(addresses)}
    (folder / "said.json").write_text(json.dumps(said))


def dying(folder: Path) -> None:
    """Another address than that of the connection, a step that cannot be traced, and a coordinator that dies.

    Tells the errors.
    """
    said, me = {}, os.getpid()
    replicator = tb.MultiWorkerAsyncReplicator(1)
    for number, _ in enumerate(replicator.train(trained(replicator), batches, 4)):
        said["steps"] = number + 1
    elsewhere = tb.MultiWorkerAsyncReplicator(address="10.1.2.3:6379")

    def crashing(*_: Any) -> Any:
        if os.getpid() != me:
            os.abort()
        return tb.no_op()

    def until_killed() -> None:
        for number, _ in enumerate(replicator.train(trained(replicator), batches, None)):
            if number == 10:
                processes = replicator._processes
                os.kill(processes._ray.get(processes.coordinator.process.remote()), signal.SIGKILL)

    for name, train in (
        ("address", lambda: next(elsewhere.train(trained(elsewhere), batches, 4))),
        ("crash", lambda: next(replicator.train(crashing, batches, 4))),
        ("coordinator", until_killed),
    ):
        try:
            train()
        except tb.errors.TensorBowError as error:
            said[name] = f"{type(error).__name__}: {error}"
    (folder / "said.json").write_text(json.dumps(said))


def uneven(context: Any) -> Any:
    for images, labels in batches(context):
        time.sleep(0.02 * (context.replica_id == 0))
        yield images, labels, np.array([context.replica_id])


def bounded(folder: Path) -> None:
    """Worker 0 is slow. Tells the workers in the order in which their steps ended."""
    replicator = tb.MultiWorkerAsyncReplicator(2, staleness=2)
    steps = replicator.train(trained(replicator), uneven, 120)
    said = {"order": [int(worker[0, 0]) for _, _, (worker,) in steps]}
    (folder / "said.json").write_text(json.dumps(said))


def hanging(folder: Path) -> None:
    """Worker 1 stops. Tells the number of steps, and its process."""
    replicator = tb.MultiWorkerAsyncReplicator(2, staleness=4, worker_timeout_s=2.0)
    steps = 0
    for _ in replicator.train(trained(replicator), batches, 100):
        if not steps:
            process = replicator._processes.process_numbers[1]
            os.kill(process, signal.SIGSTOP)
        steps += 1
    said = {"steps": steps, "by worker": replicator.steps_by_worker, "process": process}
    (folder / "said.json").write_text(json.dumps(said))


TRY = """
import sys
import ray
try:
    ray.init(address=sys.argv[1], logging_level="CRITICAL", log_to_driver=False)
    print("got in,", len(ray.nodes()), "nodes")
except BaseException as error:
    print(type(error).__name__, error)
"""


def guarded(folder: Path) -> None:
    """Others try to connect with the token, another one, and none. Tells what they were told."""
    replicator = tb.MultiWorkerAsyncReplicator(1)
    steps = replicator.train(trained(replicator), batches, None)
    next(steps)
    import ray

    address = ray.get_runtime_context().gcs_address
    said = {}
    for name, changed in (
        ("the token", {}),
        ("another token", {"RAY_AUTH_TOKEN": "0" * 64}),
        ("no token", {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": ""}),
    ):
        environment = {**os.environ, **changed, "RAY_gcs_rpc_server_connect_timeout_s": "5"}
        program = [sys.executable, "-c", TRY, address]
        done = subprocess.run(
            program, env=environment, capture_output=True, text=True, timeout=90, check=False
        )
        said[name] = done.stdout
    steps.close()
    (folder / "said.json").write_text(json.dumps(said))


def descendants() -> set[int]:
    """Numbers of this process and those that it has started, directly or not."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found, new = set[int](), {os.getpid()}
    while new:
        found |= new
        new = {process for process, parent in parents.items() if parent in new}
    return found


def addresses_listened_on(processes: set[int]) -> set[str]:
    """IP addresses on which processes listen for TCP, as Linux tells."""
    sockets = set[str]()
    for process in processes:
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(os.readlink(path))
    found = set[str]()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                words = bytes.fromhex(local.partition(":")[0])  # of 32 bits, in the order of this machine
                raw = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                address = ipaddress.ip_address(raw)
                found.add(str(getattr(address, "ipv4_mapped", None) or address))
    return found


PARTS = {"dying": dying, "short": short, "bounded": bounded, "hanging": hanging, "guarded": guarded}

if __name__ == "__main__":
    (PARTS[sys.argv[2]] if len(sys.argv) > 2 else main)(Path(sys.argv[1]))
