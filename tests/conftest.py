"""The environment every test starts from, set before anything reads it."""

import os

import torch

# The hub's fixture server must be reachable, whatever the caller's shell says.
os.environ.pop("HF_HUB_OFFLINE", None)
# Several processes share two cores: spinning threads would take them from each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Kernels decide when they are imported, which any test may cause first.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
