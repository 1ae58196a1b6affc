"""GPU kernels of the activations beside the element-wise table."""

from __future__ import annotations

from functools import partial

from tensorbow.kernels.gpu.runtime.call import gpu_kernel
from tensorbow.kernels.gpu.source.maps import prepare_rule
from tensorbow.ops.activations import LeakyRelu, LeakyReluGrad

gpu_kernel(LeakyRelu, partial(prepare_rule, LeakyRelu), inplace=((0, 0),))
gpu_kernel(LeakyReluGrad, partial(prepare_rule, LeakyReluGrad), inplace=((0, 0), (0, 1)))
