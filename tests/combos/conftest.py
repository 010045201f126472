import pytest
import torch

from combos.tiny_family import TinyFamily, make_family


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """Tiny products gain nothing from threads."""
    monkeypatch.setenv("OCTAVO_CPU_THREADS", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def family(tmp_path_factory):
    """Families by name, each made when it is first asked for."""
    known: dict[str, TinyFamily] = {}

    def get(name: str) -> TinyFamily:
        if name not in known:
            known[name] = make_family(name, tmp_path_factory.mktemp(name))
        return known[name]

    return get
