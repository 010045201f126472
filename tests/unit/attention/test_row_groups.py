import numpy as np
import pytest
import torch

from octavo.attention.row_groups import PageLayout, StepRows, row_groups

DEVICE = torch.device("cpu")


def step_rows(query_lens, seq_lens, block_size):
    query_lens = np.asarray(query_lens, dtype=np.int64)
    seq_lens = np.asarray(seq_lens, dtype=np.int64)
    width = -(-int(seq_lens.max()) // block_size) + 1
    blocks = np.arange(1, len(query_lens) * width + 1, dtype=np.int32).reshape(-1, width)
    starts = np.cumsum(query_lens) - query_lens
    return StepRows(starts, query_lens, seq_lens, blocks)


def groups_of(query_lens, seq_lens, *, window=None, max_keys=1 << 20, max_scores=1 << 24):
    rows = step_rows(query_lens, seq_lens, 16)
    layout = PageLayout(block_size=16, num_kv_heads=2, block_stride=12)
    return list(row_groups(rows, layout, window, max_keys, max_scores, DEVICE))


def test_every_row_with_tokens_is_in_one_group():
    lens = [1, 0, 3, 200, 1, 2, 0, 90, 1]
    found = np.concatenate([group.rows for group in groups_of(lens, [600] * 9)])
    assert sorted(found.tolist()) == [0, 2, 3, 4, 5, 7, 8]


def test_rows_of_a_group_are_alike():
    rng = np.random.default_rng(0)
    query_lens = rng.integers(1, 300, 100)
    seq_lens = query_lens + rng.integers(0, 3000, 100)
    for group in groups_of(query_lens, seq_lens):
        assert 2 * query_lens[group.rows].min() > group.query_len
        assert 2 * max(seq_lens[group.rows].min() + 16, 256) > group.key_len


def test_short_sequences_are_one_group_padded_to_the_longest():
    (group,) = groups_of([1] * 5, [1, 2, 50, 17, 130])
    assert group.key_len == 144


def test_window_skips_blocks_out_of_sight():
    (group,) = groups_of([1], [1000], window=32)
    # Keys 968..999: blocks 60..62.
    assert group.first_key.tolist() == [960]
    assert group.key_len == 48
    (group,) = groups_of([10], [1000], window=32)
    # The oldest query, 990, sees keys from 959.
    assert group.first_key.tolist() == [944]


def test_head_pages_address_blocks_heads_and_sides():
    rows = step_rows([1, 1], [17, 16], 16)
    layout = PageLayout(block_size=16, num_kv_heads=2, block_stride=12)
    (group,) = row_groups(rows, layout, None, 1 << 20, 1 << 24, DEVICE)
    pages = group.head_pages.view(2, 2, 2, 2)  # side, row, head, block
    first, second = rows.blocks[0, :2].tolist()
    assert pages[0, 0, 0].tolist() == [12 * first, 12 * second]
    assert pages[0, 0, 1].tolist() == [12 * first + 1, 12 * second + 1]
    assert pages[1, 0, 0].tolist() == [12 * first + 2, 12 * second + 2]
    # Row 1 has one block; its padding is the null block.
    assert pages[0, 1, 0].tolist() == [12 * int(rows.blocks[1, 0]), 0]
    # Behind row 0's end lie 15 tokens of its second block; row 1's only block is full.
    assert group.stale.numel() == 2 * 2 * 15
    assert set((group.stale // 32).tolist()) == {0, 1, 4, 5}
    assert set((group.stale % 32).tolist()) == set(range(17, 32))


@pytest.mark.parametrize(("max_keys", "max_scores"), [(1024, 1 << 24), (1 << 20, 512 * 8 * 2)])
def test_large_groups_are_cut(max_keys, max_scores):
    groups = groups_of([8] * 10, [512] * 10, max_keys=max_keys, max_scores=max_scores)
    assert [group.num_rows for group in groups] == [2] * 5
    # A single row that exceeds the limit is still computed.
    (group,) = groups_of([8], [512], max_keys=10, max_scores=10)
    assert group.num_rows == 1


def test_layout_of_a_layer_in_the_middle():
    cache = torch.zeros(5, 3, 2, 4, 16, 8)
    assert PageLayout.of(cache[:, 1]) == PageLayout(16, 4, 3 * 2 * 4)


def test_layout_refuses_other_strides():
    with pytest.raises(ValueError, match="strides"):
        PageLayout.of(torch.zeros(5, 2, 16, 4, 8).transpose(2, 3))
