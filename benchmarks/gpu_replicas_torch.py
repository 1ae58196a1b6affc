"""PyTorch for `gpu_replicas.py`: one model eager, compiled, or as a CUDA graph, many by torch.func.vmap.

The fastest settings of PyTorch: channels-last pictures and filters, cuDNN's benchmarked algorithms, the fused
optimiser, whole steps in CUDA graphs. The examples of many steps are drawn at once, outside of the graphs,
which gather them. In vmap batch norms use the batch's statistics and keep no moving ones.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

from gpu_replicas_contestant import Case, Contestant, Opening, Settings
from harness import paced
from ours import LEARNING_RATE, MOMENTUM

WARM_STEPS = 3  # before a capture
DRAWN_STEPS = 256  # whose examples are drawn at once


def torch_contestants(case: Case, settings: Settings) -> Opening:
    """PyTorch's contestants; none where it is not installed, or was built without CUDA."""
    if find_spec("torch") is None:
        return
    import torch

    if not settings.emulated:
        if not torch.cuda.is_available():
            return
        gc.collect()
        torch.cuda.empty_cache()  # of the case before
        yield "PyTorch graph", partial(_one, case, settings, "PyTorch graph")
        yield "PyTorch compile + graph", partial(_one, case, settings, "PyTorch compile + graph")
    yield "PyTorch eager", partial(_one, case, settings, "PyTorch eager")
    for replicas in settings.counts:
        if replicas > 1:
            yield f"PyTorch vmap x {replicas}", partial(_many, case, settings, replicas)


def _prepared(case: Case, settings: Settings) -> tuple[Any, Any, Any]:
    """Imports and configures PyTorch; returns it with pictures and labels on the device."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = settings.compute != "fp32"
    precision = {"fp32": "highest", "tf32": "high", "bf16": "medium"}[settings.compute]
    torch.set_float32_matmul_precision(precision)
    torch.manual_seed(1)
    device = torch.device("cpu" if settings.emulated else "cuda")
    pictures, answers = case.data().batch()
    return torch, torch.from_numpy(pictures).to(device), torch.from_numpy(answers).to(device)


def channels_last(images: Any) -> Any:
    """View [..., channels, height, width] of memory in which the channels are contiguous."""
    return images.movedim(-1, -3)


def _drawn(torch: Any, labels: Any, shape: tuple[int, ...]) -> tuple[Any, Callable[[], None]]:
    """Indices of a step's examples, int64 of that shape, and a call that replaces them by the next ones."""
    drawn = torch.randint(len(labels), (DRAWN_STEPS, *shape), device=labels.device)
    chosen, steps = drawn[0].clone(), itertools.count(1)

    def draw() -> None:
        at = next(steps) % DRAWN_STEPS
        if at == 0:
            torch.randint(len(labels), drawn.shape, device=labels.device, out=drawn)
        chosen.copy_(drawn[at])

    return chosen, draw


def _one(case: Case, settings: Settings, name: str) -> Contestant:
    torch, images, labels = _prepared(case, settings)
    from models_torch import torch_network

    network: Any = torch_network(case.model)
    network = network.to(images.device, memory_format=torch.channels_last)
    options = {} if settings.emulated else {"fused": True}
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, **options)
    chosen, draw = _drawn(torch, labels, (case.batch_size,))
    logits = torch.compile(network) if "compile" in name else network

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(logits(channels_last(images[chosen])), labels[chosen]).backward()
        optimizer.step()

    run = _captured(torch, step) if "graph" in name else step
    return _contestant(torch, name, 1, case, settings, draw, run)


def _many(case: Case, settings: Settings, replicas: int) -> Contestant:
    torch, images, labels = _prepared(case, settings)
    from models_torch import torch_network

    networks = [torch_network(case.model).to(images.device) for _ in range(replicas)]
    base = networks[0]
    if case.model.startswith("resnet"):
        for network in networks:
            torch.func.replace_all_batch_norm_modules_(network)
    weights, buffers = torch.func.stack_module_state(networks)
    weights = {name: value.detach() for name, value in weights.items()}
    velocity = {name: torch.zeros_like(value) for name, value in weights.items()}

    def loss(one: Any, kept: Any, x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(torch.func.functional_call(base, (one, kept), (x,)), y)

    gradients = torch.func.vmap(torch.func.grad(loss), randomness="different")
    chosen, draw = _drawn(torch, labels, (replicas, case.batch_size))

    @torch.no_grad()
    def step() -> None:
        found = gradients(weights, buffers, channels_last(images[chosen]), labels[chosen])
        moved = list(velocity.values())
        torch._foreach_mul_(moved, MOMENTUM)
        torch._foreach_add_(moved, [found[name] for name in velocity])
        torch._foreach_add_(list(weights.values()), moved, alpha=-LEARNING_RATE)

    run = step if settings.emulated else _captured(torch, step)
    return _contestant(torch, "PyTorch vmap", replicas, case, settings, draw, run)


def _captured(torch: Any, step: Callable[[], None]) -> Callable[[], None]:
    """Captures the step as a CUDA graph, after warm-up steps on a separate stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], None] = graph.replay
    return replay


def _contestant(
    torch: Any,
    name: str,
    replicas: int,
    case: Case,
    settings: Settings,
    draw: Callable[[], None],
    step: Callable[[], None],
) -> Contestant:
    def run_steps(steps: int) -> None:
        for _ in range(steps):
            draw()
            step()
        if not settings.emulated:
            torch.cuda.synchronize()

    return Contestant(name, replicas, paced(run_steps, replicas * case.batch_size))
