"""Hugging Face configs: merging and reading."""

from __future__ import annotations

from octavo.config.hf import checkpoint_dtype, merge


def test_merge_goes_into_nested_entries_and_leaves_its_arguments_alone():
    base = {"a": {"b": 1, "c": 2}, "d": [1]}
    overrides = {"a": {"b": 3}, "e": {"f": 4}}
    merged = merge(base, overrides)
    assert merged == {"a": {"b": 3, "c": 2}, "d": [1], "e": {"f": 4}}
    merged["d"].append(2)
    merged["e"]["f"] = 5
    assert base == {"a": {"b": 1, "c": 2}, "d": [1]}
    assert overrides == {"a": {"b": 3}, "e": {"f": 4}}


def test_a_value_replaces_a_mapping_and_back():
    assert merge({"a": {"b": 1}}, {"a": None}) == {"a": None}
    assert merge({"a": None}, {"a": {"b": 1}}) == {"a": {"b": 1}}


def test_dtypes_of_every_age():
    assert checkpoint_dtype({"dtype": "bfloat16"}) == "bfloat16"
    assert checkpoint_dtype({"torch_dtype": "torch.float16"}) == "float16"
    assert checkpoint_dtype({"dtype": None, "torch_dtype": "float16"}) == "float16"
    assert checkpoint_dtype({}) == "float32"
