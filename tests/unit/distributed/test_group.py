import torch

from octavo.distributed.group import SingleRank


def test_one_rank_keeps_what_it_has():
    group = SingleRank()
    x = torch.randn(2, 3)
    assert (group.rank, group.size) == (0, 1)
    assert torch.equal(group.all_reduce(x), x)
    assert torch.equal(group.all_gather(x), x)
