from __future__ import annotations

import pytest
import torch

from octavo.attention.interface import AttentionParams
from support.interpreter import require_interpreter

require_interpreter()
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)

LONE = [(1, 33), (1, 64), (1, 1)]


@pytest.fixture(autouse=True)
def _poisoned_memory(monkeypatch):
    """What nobody wrote is not a number, or no place in memory."""
    empty = torch.empty

    def poisoned(*args, **kwargs):
        made = empty(*args, **kwargs)
        return made.fill_(float("nan") if made.is_floating_point() else 1 << 30)

    monkeypatch.setattr(torch, "empty", poisoned)


def make_params(heads, window=None, soft_cap=None, sinks=False):
    generator = torch.Generator().manual_seed(1)
    sink = torch.randn(heads[0], generator=generator) if sinks else None
    return AttentionParams(heads[2] ** -0.5, *heads, window, soft_cap, sink)


def decodes(*lengths):
    return [(1, length) for length in lengths]


@pytest.mark.parametrize(
    ("rows", "groups", "padding", "params"),
    [
        # Two rows; the tail of one is a single key.
        (decodes(129, 200), [(0, 2, 128)], 0, make_params((4, 2, 16))),
        # More rows than a tile takes, heads that don't fill it, lone rows behind and padding.
        ([*decodes(70, 65, 90, 127, 66, 200, 81), *LONE], [(0, 7, 64)], 2, make_params((6, 2, 24))),
        # Lone rows before, between and behind two groups.
        (
            [*LONE, *decodes(200, 193), (1, 50), *decodes(100, 99, 98, 70, 140), *LONE],
            [(3, 2, 192), (6, 5, 64)],
            0,
            make_params((8, 2, 32), sinks=True),
        ),
        # Groups side by side; long enough for several parts.
        (
            decodes(780, 770, 330, 321, 329),
            [(0, 2, 768), (2, 3, 320)],
            0,
            make_params((4, 1, 16), soft_cap=5.0),
        ),
        # A prefix that ends within a tile of keys: what is behind the last whole tile is tail.
        (decodes(120, 113, 160), [(0, 3, 112)], 1, make_params((4, 2, 16))),
        # One shorter than a tile: every row for itself.
        (decodes(50, 49), [(0, 2, 48)], 0, make_params((4, 2, 16))),
        # A step that also has prompts and rows with drafts.
        (
            [*decodes(150, 140, 90), (3, 40), (70, 100)],
            [(0, 2, 128)],
            1,
            make_params((8, 4, 16), sinks=True),
        ),
        # Every query head has its own keys, and one head for all.
        (decodes(*range(65, 85)), [(0, 20, 64)], 0, make_params((2, 2, 16))),
        (decodes(130, 140), [(0, 2, 128)], 0, make_params((16, 1, 16))),
        # Layers with a window take no notice.
        (decodes(150, 140), [(0, 2, 128)], 0, make_params((4, 2, 16), window=40)),
    ],
)
def test_matches_reference(rows, groups, padding, params):
    cases.check_attention(
        rows, params, "cpu", torch.float32, padding=padding, groups=groups, layers=1 + padding
    )


@pytest.mark.parametrize("num_rows", [2, 8, 9])
def test_matches_reference_in_float16(num_rows):
    rows = decodes(*range(70, 70 + num_rows), 40)
    params = make_params((8, 1, 16), sinks=True)
    cases.check_attention(rows, params, "cpu", torch.float16, groups=[(0, num_rows, 64)], layers=1)


@pytest.mark.parametrize("seed", range(3))
def test_random_groups(seed):
    random = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return int(torch.randint(low, high, (), generator=random))

    rows, groups = [], []
    for _ in range(draw(1, 4)):
        prefix = 16 * draw(4, 16)
        size = draw(2, 7)
        groups.append((len(rows), size, prefix))
        rows += [(1, prefix + draw(1, 100)) for _ in range(size)]
        rows += [(1, draw(1, 100)) for _ in range(draw(0, 4))]
    heads = [(4, 2, 16), (6, 2, 24), (3, 3, 16), (8, 1, 32)][seed % 4]
    params = make_params(heads, soft_cap=5.0 if seed % 3 == 0 else None, sinks=seed % 2 == 0)
    cases.check_attention(
        rows, params, "cpu", torch.float32, padding=seed, groups=groups, seed=seed, layers=1
    )


def test_a_shared_key_is_loaded_by_one_tile_of_rows():
    """Whole groups have few tiles; a row's own line begins behind its prefix."""
    params = make_params((4, 1, 16))
    rows = decodes(*range(1025, 1045))
    step = cases.make_step(
        [1] * 20, [n for _, n in rows], params, 16, groups=[(0, 20, 1024)], dtype=torch.float16
    )
    backend = cases.TritonAttention(cases.make_setup(params, 16, dtype=torch.float16))
    metadata = backend.build_metadata(step.batch)
    backend.forward(step.q, step.kv, metadata, params)
    decode_map = metadata.decode_maps[0]
    shared = decode_map.shared
    num_tiles, prefix_tiles = int(shared.ints[0]), 1024 // decode_map.tile
    assert num_tiles == -(-20 // shared.rows_per_tile) < 20 / 8
    assert shared.ints[16 : 16 + num_tiles].tolist() == [
        prefix_tiles * (i + 1) for i in range(num_tiles)
    ]
    assert int(decode_map.tile_ends[-1]) == 20


def test_maps_hold_for_other_groups_at_replay():
    """What a captured graph reads anew: lengths and groups may change between two replays."""
    params = make_params((4, 2, 16))
    step = cases.make_step(
        [1] * 6, [200, 190, 180, 170, 160, 150], params, 16, groups=[(0, 6, 128)]
    )
    backend = cases.TritonAttention(cases.make_setup(params, 16))
    batch = step.batch
    expected = cases.paged_attention(
        step.q, step.kv, batch.query_start_loc, batch.seq_lens, step.rows, params.scale
    )
    for first_rows, tokens in (
        ([0] * 6, [128] * 6),
        ([0] * 6, [0] * 6),
        ([0, 0, 0, 3, 3, 3], [64, 64, 64, 128, 128, 128]),
        ([0, 1, 1, 0, 4, 4], [0, 128, 128, 0, 80, 80]),
    ):
        batch.shared_prefixes.first_rows.copy_(torch.tensor(first_rows))
        batch.shared_prefixes.num_tokens.copy_(torch.tensor(tokens))
        out = backend.forward(step.q, step.kv, backend.build_metadata(batch), params)
        cases.assert_close(out, expected, torch.float32)
