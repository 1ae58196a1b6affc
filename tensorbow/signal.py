"""`tb.signal`: Fourier transforms under TensorFlow's names, and the order of their frequencies."""

from tensorbow import spectral
from tensorbow.ops.fourier import fftshift, ifftshift
from tensorbow.spectral import *

__all__ = ["fftshift", "ifftshift"]
__all__ += spectral.__all__
