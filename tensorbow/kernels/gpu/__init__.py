"""The GPU backend: plans as CUDA graphs of NVRTC kernels, cuBLAS and cuDNN calls; imported on first use."""
