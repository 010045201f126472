import pytest

from support.tiny_models import save_tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A tiny Llama as transformers saves it."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny("llama", folder)
    return folder
