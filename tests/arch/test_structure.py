"""Rules of the house that a machine can check."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "octavo"


def modules_loaded_by(code: str) -> set[str]:
    probe = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_octavo_loads_neither_torch_nor_the_engine():
    loaded = modules_loaded_by("import octavo")
    assert not {"torch", "numpy", "zmq", "octavo.engine"} & loaded


@pytest.mark.parametrize(
    "module",
    [
        "octavo.cli.main",
        "octavo.core.scheduler",
        "octavo.engine.async_llm",
        "octavo.engine.plan",
        "octavo.entrypoints.openai.app",
        "octavo.entrypoints.openai.serve",
    ],
)
def test_front_end_and_scheduler_load_no_torch(module):
    loaded = modules_loaded_by(f"import {module}")
    assert not {"torch", "triton", "transformers", "fastapi", "pydantic"} & loaded


def test_public_names_resolve():
    code = "import octavo\nfor name in octavo.__all__: getattr(octavo, name)"
    assert "octavo.entrypoints.llm" in modules_loaded_by(code)


def test_every_module_says_what_it_is():
    for path in SOURCE.rglob("*.py"):
        doc = ast.get_docstring(ast.parse(path.read_text()))
        assert doc, path
        assert doc.split("\n")[0].rstrip().endswith((".", ":")) or "\n\n" not in doc, path


# Packages of extras may be missing, ours may not.
IMPORT_ENTRIES = """
import ast, importlib, sys
for module, attribute in ast.literal_eval(sys.argv[1]):
    try:
        getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] not in ("matplotlib", "xgrammar", "redis", "opentelemetry"):
            raise
"""


def test_every_registry_entry_imports():
    registries = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                module, colon, attribute = node.value.partition(":")
                if colon and module.startswith("octavo.") and attribute.isidentifier():
                    registries.append((module, attribute))
    assert registries
    entries = [entry for entry in sorted(set(registries)) if "triton" not in entry[0]]
    subprocess.run([sys.executable, "-c", IMPORT_ENTRIES, repr(entries)], check=True)
