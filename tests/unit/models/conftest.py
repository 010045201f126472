import pytest

from octavo.checkpoints.locate import find_model
from support.tiny_models import save_tiny


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory):
    """Files of a tiny Llama."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny("llama", folder)
    return find_model(str(folder))
