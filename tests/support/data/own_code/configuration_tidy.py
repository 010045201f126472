"""A configuration with names of its own; notes that it was run."""

import os
from pathlib import Path

from transformers import PreTrainedConfig

Path(os.environ["OWN_CODE_RAN"]).joinpath("configuration").touch()


class TidyConfig(PreTrainedConfig):
    """As config.json has it: breadth, depth, heads."""

    model_type = "tidy"
    attribute_map = {  # noqa: RUF012
        "hidden_size": "breadth",
        "num_hidden_layers": "depth",
        "num_attention_heads": "heads",
    }

    def __init__(
        self, breadth=32, depth=2, heads=4, vocab_size=203, max_position_embeddings=128, **kwargs
    ):
        self.breadth = breadth
        self.depth = depth
        self.heads = heads
        self.vocab_size = vocab_size
        self.max_position_embeddings = max_position_embeddings
        super().__init__(**kwargs)
