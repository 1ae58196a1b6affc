"""Makes the ONNX files beside it by PyTorch's exporters, with PyTorch's outputs and gradients.

python tests/interop/data/make_models.py [FOLDER]
python tests/interop/data/make_models.py FOLDER WAY     # one file, ResNet-18 of full size
"""

from __future__ import annotations

import copy
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        short = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.shortcut = nn.Sequential(*short) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """As torchvision's, with two blocks."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.blocks = nn.Sequential(Block(4, 4, 1), Block(4, 6, 2))
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        x = functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(self.blocks(x), 1), 1))


class ResNet18(nn.Module):
    """As torchvision's."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = [64, 64, 128, 256, 512]
        stages = [
            nn.Sequential(Block(before, after, 1 if before == after else 2), Block(after, after, 1))
            for before, after in pairwise(widths)
        ]
        self.blocks = nn.Sequential(*stages)
        self.fc = nn.Linear(512, 1000)

    forward = ResNet.forward


class Transformer(nn.Module):
    """A causal language model."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.positions = nn.Parameter(torch.randn(6, 8) * 0.1)
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(6)
        y = self.encoder(self.embedding(x) + self.positions, mask=mask, is_causal=True)
        return self.head(self.norm(y))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 5, 2, batch_first=True)
        self.head = nn.Linear(5, 4)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0][:, -1])


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 4, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.gru(x)[0]


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 7), nn.Tanh(), nn.Linear(7, 3)
    )


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 5),
        nn.ReLU(),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(4 * 3 * 2, 9),
        nn.ReLU(),
        nn.Linear(9, 10),
    )


def inputs_of(name: str) -> torch.Tensor:
    shapes = {"mlp": (4, 3, 4), "lenet": (4, 1, 20, 16), "resnet": (4, 3, 25, 21), "gru": (4, 5, 3)}
    if name in shapes:
        return torch.randn(shapes[name])
    return torch.randint(11, (4, 6 if name == "transformer" else 5))


MODELS = {"mlp": mlp, "lenet": lenet, "resnet": ResNet, "transformer": Transformer, "lstm": Lstm, "gru": Gru}
# dynamo: PyTorch's newer exporter, with its optimisations and without. script: the older one, for inference
# (it folds batch normalisation) and for training.
WAYS = {
    "dynamo": {"dynamo": True},
    "dynamo-plain": {"dynamo": True, "optimize": False},
    "dynamo-opset23": {"dynamo": True, "opset_version": 23},
    "script": {"dynamo": False},
    "script-training": {
        "dynamo": False,
        "training": torch.onnx.TrainingMode.TRAINING,
        "do_constant_folding": False,
    },
}
FILES = [
    ("mlp", "dynamo"),
    ("mlp", "script"),
    ("lenet", "dynamo-plain"),
    ("lenet", "script-training"),
    ("resnet", "dynamo"),
    ("resnet", "dynamo-plain"),
    ("resnet", "script"),
    ("resnet", "script-training"),
    ("transformer", "dynamo-plain"),
    ("transformer", "dynamo-opset23"),
    ("transformer", "script"),
    ("lstm", "dynamo"),
    ("lstm", "dynamo-plain"),
    ("lstm", "script-training"),
    ("gru", "script-training"),
]


def export(model: nn.Module, x: torch.Tensor, path: Path, way: str) -> None:
    """Writes a model with an open batch, without the exporter's notes."""
    options = dict(WAYS[way])
    if options["dynamo"]:
        options |= {"dynamic_shapes": ({0: torch.export.Dim("batch", min=2)},), "external_data": False}
    else:
        options |= {"dynamic_axes": {"x": {0: "batch"}, "y": {0: "batch"}}}
    model.train(way == "script-training")
    torch.onnx.export(model, (x,), path, input_names=["x"], output_names=["y"], verbose=False, **options)
    proto = onnx.load(path)
    del proto.metadata_props[:], proto.graph.metadata_props[:], proto.graph.value_info[:]
    for item in [*proto.graph.node, *proto.graph.initializer, *proto.graph.input, *proto.graph.output]:
        del item.metadata_props[:]
        item.doc_string = ""
    onnx.save(proto, path)


def facts(model: nn.Module, x: torch.Tensor) -> dict[str, np.ndarray]:
    """Output in evaluation; gradients of sum(output ** 2) in evaluation, and in training without dropout."""
    found = {"x": x.numpy()}
    for mode in ("eval", "train"):
        model.train(mode == "train")
        for part in model.modules():
            if isinstance(part, (nn.Dropout, nn.MultiheadAttention)):
                part.train(False)
        model.zero_grad()
        output = model(x)
        found[f"{mode}/output"] = output.detach().numpy()
        output.square().sum().backward()
        for name, parameter in model.named_parameters():
            found[f"{mode}/gradient/{name}"] = parameter.grad.numpy().copy()
    for name, value in model.named_buffers():
        if "running" in name:
            found[f"after/{name}"] = value.numpy()
    return {name: np.ascontiguousarray(array) for name, array in found.items()}


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name, make in MODELS.items():
        torch.manual_seed(7)
        model = make()
        with torch.no_grad():
            for vector in (value for value in model.state_dict().values() if value.ndim == 1):
                vector.add_(torch.rand_like(vector) * 0.2)
        x = inputs_of(name)
        for way in (way for file, way in FILES if file == name):
            export(copy.deepcopy(model), x, folder / f"{name}-{way}.onnx", way)
        if name in ("lenet", "resnet", "lstm", "gru"):
            save_torch_file(model.state_dict(), folder / f"{name}-state.safetensors")
        save_file(facts(model, x), folder / f"{name}.safetensors")


def make_resnet18(folder: Path, way: str) -> None:
    """Writes resnet18.onnx, and an input and its output in evaluation."""
    warnings.simplefilter("ignore")
    torch.manual_seed(7)
    model, x = ResNet18(), torch.randn(2, 3, 64, 64)
    export(copy.deepcopy(model), x, folder / "resnet18.onnx", way)
    found = {"x": x.numpy(), "y": model.eval()(x).detach().numpy()}
    save_file(found, folder / "resnet18.safetensors")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        make_resnet18(Path(sys.argv[1]), sys.argv[2])
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
