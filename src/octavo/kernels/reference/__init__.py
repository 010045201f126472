"""Plain PyTorch kernels: what the CPU runs and what device kernels are tested against."""
