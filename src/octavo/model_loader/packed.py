"""Weights that stay packed: codes from a file to the layers that keep them, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import nn

from octavo.checkpoints.gguf_codes import CODE_FORMS, group_codes
from octavo.checkpoints.gguf_quants import dequantize
from octavo.checkpoints.model_files import ModelFiles
from octavo.checkpoints.tensors import NUMPY_DTYPES, RawTensor
from octavo.layers.embedding import VocabParallelEmbedding
from octavo.layers.linear import Linear
from octavo.layers.quantization.interface import PackingMethod
from octavo.models.common.weights import Target, WeightMap, WeightTarget
from octavo.models.interfaces import Model
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

PackingLayer = Linear | VocabParallelEmbedding


def tensors_without_codes(files: ModelFiles, weights: WeightMap) -> Iterator[tuple[str, RawTensor]]:
    """The tensors of a checkpoint as numbers, but for those that layers keep as codes.

    Those are given to their layers on the way.
    """
    keepers = {
        name: keeper
        for name, target in weights.targets.items()
        if (keeper := _keeper(target)) is not None
    }
    if not keepers:
        yield from files.tensors()
        return
    for name, raw in files.tensors(packed=True):
        keeper = keepers.get(weights.canonical(name))
        if raw.dtype in NUMPY_DTYPES:
            yield name, raw
        elif keeper is not None and raw.dtype in CODE_FORMS:
            layer, index = keeper
            layer.load_codes(index, group_codes(raw.dtype, raw.array))
        else:
            yield name, RawTensor(name, "F32", dequantize(name, raw.dtype, raw.array))


def packing_layers(model: Model) -> Iterator[tuple[str, PackingLayer, PackingMethod]]:
    """(path, layer, method) of every packed weight; one that two layers share comes once."""
    seen: set[int] = set()
    for path, module in cast(nn.Module, model).named_modules():
        if not isinstance(module, Linear | VocabParallelEmbedding):
            continue
        method = module.method
        if isinstance(method, PackingMethod) and id(method) not in seen:
            seen.add(id(method))
            yield path, module, method


def fill_with_noise(model: Model, limit: float) -> set[int]:
    """Random weights, uniform within +-limit, for every packed one.

    Returns the ids of their parameters, which have no memory of their own.
    """
    generator = torch.Generator().manual_seed(0)
    filled = set()
    for _, layer, method in packing_layers(model):
        weight = layer.get_parameter("weight")
        filled.add(id(weight))
        noise = torch.empty(weight.shape).uniform_(-limit, limit, generator=generator)
        method.load_rows(0, noise)
    return filled


def log_packing(model: Model) -> None:
    """Say how many weights are packed and which are not."""
    num_packed, plain, num_bytes = 0, [], 0
    for path, _, method in packing_layers(model):
        num_packed += method.num_packed
        num_bytes += method.nbytes
        if method.num_plain:
            plain.append(path)
    if num_packed or plain:
        logger.info("%d weights are packed, %.1f MiB", num_packed, num_bytes / 2**20)
    if plain:
        logger.warning(
            "%d layers have weights that can't be packed and stay as they are (inputs are no "
            "multiple of 32, or a type other than %s): %s%s",
            len(plain),
            ", ".join(CODE_FORMS),
            ", ".join(plain[:4]),
            ", ..." if len(plain) > 4 else "",
        )


def _keeper(target: Target) -> tuple[PackingLayer, int] | None:
    """The layer that keeps a target's codes, and which of its fused weights the target is."""
    if not isinstance(target, WeightTarget) or target.param != "weight" or target.transposed:
        return None
    layer = target.module
    if not isinstance(layer, Linear | VocabParallelEmbedding):
        return None
    method = layer.method
    if isinstance(method, PackingMethod) and method.takes_codes:
        return layer, target.index
    return None
