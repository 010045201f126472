"""Answer a file of questions without a server.

python examples/offline_batch.py [QUESTIONS.txt [ANSWERS.jsonl]]

One question a line. The engine takes them all at once and fills its batch by itself, so there is
no need to group them. `octavo run-batch` does the same for files in OpenAI's batch format.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from octavo import LLM, SamplingParams

QUESTIONS = [
    "What is the capital of France?",
    "What is the capital of Italy?",
    "Name a colour.",
    "What do bees make?",
]


def main(arguments: list[str]) -> None:
    questions = Path(arguments[0]).read_text().splitlines() if arguments else QUESTIONS
    target = Path(arguments[1]) if len(arguments) > 1 else None
    llm = LLM()  # or LLM(model="path/or/hub-id"); takes what the flags of `octavo serve` say
    outputs = llm.chat(
        [[{"role": "user", "content": question}] for question in questions],
        SamplingParams(temperature=0, max_tokens=48),
    )
    lines = [
        json.dumps(
            {
                "question": question,
                "answer": output.outputs[0].text,
                "finish_reason": output.outputs[0].finish_reason,
                "tokens": len(output.outputs[0].token_ids),
            }
        )
        for question, output in zip(questions, outputs, strict=True)
    ]
    if target is None:
        print("\n".join(lines))
    else:
        target.write_text("\n".join(lines) + "\n")


# The engine core is a process of its own, which must be able to import this file.
if __name__ == "__main__":
    main(sys.argv[1:])
