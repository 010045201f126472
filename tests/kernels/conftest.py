"""Without a GPU the Triton kernels run in Triton's interpreter."""

import os

import torch

if not torch.cuda.is_available():
    # Read when a kernel's module is imported.
    os.environ["TRITON_INTERPRET"] = "1"
