"""Search texts by meaning: embeddings from the server, cosine by NumPy.

octavo serve sentence-transformers/all-MiniLM-L6-v2      # or any embedding model
python examples/embeddings.py [http://localhost:8000]
"""

from __future__ import annotations

import sys

import numpy as np
from openai import OpenAI

TEXTS = [
    "The cat sleeps on the sofa.",
    "Stock prices fell sharply on Monday.",
    "A recipe for tomato soup with basil.",
    "The train to Hamburg leaves at nine.",
    "Quarterly profits of the bank have doubled.",
]
QUERIES = ["news about money", "a pet at rest", "what to cook tonight"]


def main(url: str) -> None:
    client = OpenAI(base_url=f"{url}/v1", api_key="none")

    def embed(texts: list[str]) -> np.ndarray:
        """One row of length 1 per text; the server takes them all in one request."""
        reply = client.embeddings.create(model="", input=texts)
        rows = np.array([entry.embedding for entry in reply.data], dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    library = embed(TEXTS)
    for query, scores in zip(QUERIES, embed(QUERIES) @ library.T, strict=True):
        best = int(scores.argmax())
        print(f"{query}: {TEXTS[best]} ({scores[best]:.2f})")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000")
