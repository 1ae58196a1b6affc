"""The native CPU backend: segments as functions generated with llvmlite; imported if that is installed."""
