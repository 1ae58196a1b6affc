"""The native CPU backend: segments as functions generated with llvmlite, loaded where that is installed."""
