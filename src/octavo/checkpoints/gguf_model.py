"""GGUFModelFiles: a whole model (weights, configuration, tokenizer, template) from GGUF."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from octavo.checkpoints import gguf_config, gguf_quants, gguf_tokenizer
from octavo.checkpoints.gguf_file import GGUFFile
from octavo.checkpoints.gguf_layout import GGUFLayout
from octavo.checkpoints.model_files import ModelFiles
from octavo.checkpoints.tensors import NUMPY_DTYPES, MappedFiles, RawTensor, TensorHeader
from octavo.types.errors import CheckpointError

_SPLIT_NAME = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


class GGUFModelFiles(ModelFiles):
    """One .gguf file, or the first of a split model (NAME-00001-of-0000N.gguf)."""

    kind = "gguf"

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        self._files = MappedFiles()

    def config(self) -> dict[str, Any]:
        """config.json made from the metadata."""
        tables = {
            name: self._files.read(name, header).array
            for name, header in self._gguf_headers.items()
            if self._layout.name(name) is None
        }
        return gguf_config.hf_config(self._file, self._gguf_headers, tables)

    def generation_config(self) -> dict[str, Any]:
        """The special token ids of the metadata."""
        return gguf_config.generation_config(self._file)

    def tensor_headers(self) -> dict[str, TensorHeader]:
        """Headers under Hugging Face names; `dtype` and `nbytes` are those of the file."""
        layout = self._layout
        return {
            name: replace(
                header, shape=layout.shape(name, header.shape), direct=layout.is_direct(name)
            )
            for gguf_name, header in self._gguf_headers.items()
            if (name := layout.name(gguf_name)) is not None
        }

    def tensors(self, packed: bool = False) -> Iterator[tuple[str, RawTensor]]:
        """Every tensor in the Hugging Face layout, dequantized one at a time unless `packed`."""
        heads = gguf_config.head_counts(self._file)
        layout = self._layout
        for gguf_name, header in self._gguf_headers.items():
            name = layout.name(gguf_name)
            if name is not None:
                # Blocks run along the inputs: a transposed tensor has none.
                keep = packed and not layout.is_transposed(name)
                dtype, array = self._read(name, header, keep)
                yield name, RawTensor(name, dtype, layout.restore(name, array, *heads))

    def tokenizer_json(self) -> str:
        """A tokenizer.json made from the file's vocabulary."""
        return gguf_tokenizer.tokenizer_json(self._file)

    def tokenizer_config(self) -> dict[str, Any]:
        """Special tokens and flags of the metadata."""
        return gguf_config.tokenizer_config(self._file)

    def chat_templates(self) -> dict[str, str]:
        """The templates of the metadata."""
        return gguf_config.chat_templates(self._file)

    def pooling_mode(self) -> str | None:
        """How a model of embeddings pools, by the metadata."""
        return gguf_config.pooling_mode(self._file)

    @functools.cached_property
    def _file(self) -> GGUFFile:
        return GGUFFile(self.path, self._files)

    @functools.cached_property
    def _layout(self) -> GGUFLayout:
        return GGUFLayout(gguf_config.family(self._file))

    @functools.cached_property
    def _gguf_headers(self) -> dict[str, TensorHeader]:
        count = self._file.get("split.count", 1)
        if count <= 1:
            return self._file.headers
        headers: dict[str, TensorHeader] = {}
        for path in self._split_paths(count):
            part = self._file if path == self.path else GGUFFile(path, self._files)
            repeated = headers.keys() & part.headers.keys()
            if repeated:
                raise CheckpointError(f"{path} repeats the tensor {min(repeated)}")
            headers |= part.headers
        return headers

    def _split_paths(self, count: int) -> list[Path]:
        match = _SPLIT_NAME.match(self.path.name)
        if match is None or int(match["number"]) != 1:
            raise CheckpointError(
                f"{self.path} is part of a model split into {count} files; name the first one, "
                f"...-00001-of-{count:05d}.gguf, and keep the names they were published under"
            )
        paths = [
            self.path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf")
            for number in range(1, count + 1)
        ]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise CheckpointError(f"{self.path.parent} lacks {', '.join(missing[:8])}")
        return paths

    def _read(self, name: str, header: TensorHeader, packed: bool) -> tuple[str, NDArray[Any]]:
        if header.dtype in NUMPY_DTYPES:
            return header.dtype, self._files.read(name, header).array
        rows = self._files.raw_bytes(header).reshape(*header.shape[:-1], -1)
        if packed:
            return header.dtype, rows
        return "F32", gguf_quants.dequantize(name, header.dtype, rows)
