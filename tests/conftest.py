"""The environment every test starts from, set before anything reads it."""

import os

# The hub's fixture server must be reachable, whatever the caller's shell says.
os.environ.pop("HF_HUB_OFFLINE", None)
# Several processes share two cores: spinning threads would take them from each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
