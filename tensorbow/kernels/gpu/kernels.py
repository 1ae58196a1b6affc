"""Every module of GPU kernels, loaded so that its kernels are registered."""
