"""The frame of TensorFlow 1's programs: flags, `main`, messages and files."""

__all__: list[str] = []
