"""Models in real object stores: S3's, Azure's and Google's emulators, behind a proxy that cuts."""

import logging

import pytest

from octavo.checkpoints import download
from octavo.checkpoints.locate import find_model
from octavo.types.errors import CheckpointError
from support.cutting_proxy import cutting_proxy
from support.small_downloads import CHUNK, small_and_quick  # noqa: F401 (a fixture)
from support.store_emulators import BUCKET, STORES
from support.tiny_gguf import write_gguf
from support.tiny_models import save_tiny

pytestmark = pytest.mark.usefixtures("small_and_quick")
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_tiny("llama", folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module", params=list(STORES))
def store(request):
    with STORES[request.param]() as found:
        yield found


@pytest.fixture
def proxy(store, monkeypatch):
    with cutting_proxy(store.url) as found:
        for name, value in store.environment(found.url).items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def folder(store, model, request):
    """A folder of the bucket for this test alone, with more than is needed in it."""
    name = f"models/{request.node.originalname}"
    for file, data in (model | {"README.md": b"text", "pytorch_model.bin": b"again"}).items():
        store.put(f"{name}/{file}", data)
    # A neighbour whose name begins alike.
    store.put(f"{name}-2/config.json", b"{}")
    return name


@pytest.fixture
def url(store, folder):
    return f"{store.scheme}://{BUCKET}/{folder}"


def content(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".octavo" not in path.parts
    }


def altered(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def starts(size):
    return list(range(0, size, CHUNK))


def test_a_folder_comes_whole_in_parallel_ranges(proxy, url, model):
    files = find_model(url)
    assert content(files.path) == model
    assert len(list(files.tensors())) == len(files.tensor_headers()) > 0
    read = sorted(start for name, start in proxy.ranges if name == WEIGHTS)
    assert read == starts(len(model[WEIGHTS]))
    assert 1 < proxy.most_at_once <= download.NUM_THREADS
    proxy.ranges.clear()
    assert content(find_model(url).path) == model
    assert not proxy.ranges


def test_answers_that_are_cut_short_are_asked_for_again(proxy, url, model):
    proxy.break_after, proxy.breaks = 3, 7
    assert content(find_model(url).path) == model
    assert proxy.breaks == 0


def test_the_next_start_goes_on(proxy, url, model):
    find_model(url, weights=False)
    proxy.break_after, proxy.breaks = 4, 10**6
    with pytest.raises(CheckpointError, match="the next start goes on from there"):
        find_model(url)
    proxy.breaks = 0
    proxy.ranges.clear()
    assert content(find_model(url).path) == model
    again = [start for name, start in proxy.ranges if name == WEIGHTS]
    assert len(again) == len(starts(len(model[WEIGHTS]))) - 4


def test_what_was_half_fetched_and_has_changed_is_started_anew(proxy, store, folder, url, model):
    find_model(url, weights=False)
    proxy.break_after, proxy.breaks = 4, 10**6
    with pytest.raises(CheckpointError):
        find_model(url)
    proxy.breaks = 0
    changed = altered(model[WEIGHTS])
    store.put(f"{folder}/{WEIGHTS}", changed)
    assert content(find_model(url).path) == model | {WEIGHTS: changed}


def test_what_changed_is_fetched_again(proxy, store, folder, url, model):
    find_model(url)
    changed = model["config.json"].replace(b"\n", b"\n ")
    store.put(f"{folder}/config.json", changed)
    store.delete(f"{folder}/generation_config.json")
    proxy.ranges.clear()
    after = content(find_model(url).path)
    assert after["config.json"] == changed
    assert model.keys() - after.keys() == {"generation_config.json"}
    assert {name for name, _ in proxy.ranges} == {"config.json"}


def test_a_file_that_changes_while_it_is_read(proxy, store, folder, url, model, monkeypatch):
    original = download._fetch_chunks

    def fetch(source, partial, advance):
        store.put(f"{folder}/{WEIGHTS}", altered(model[WEIGHTS]))
        original(source, partial, advance)

    monkeypatch.setattr(download, "_fetch_chunks", fetch)
    with pytest.raises(CheckpointError, match="changed while it was read; start again"):
        find_model(url)


def test_a_gguf_file(proxy, store, tmp_path):
    data = write_gguf(tmp_path / "m.gguf").read_bytes()
    # A name that is written otherwise in URLs.
    store.put("some models/m 100%.gguf", data)
    files = find_model(f"{store.scheme}://{BUCKET}/some models/m 100%.gguf")
    assert (files.kind, files.path.read_bytes()) == ("gguf", data)
    assert files.config()["hidden_size"] == 64


@pytest.mark.parametrize("place", [f"{BUCKET}/nothing", "no-bucket/models"])
def test_what_is_not_there(proxy, store, place):
    with pytest.raises(CheckpointError, match=f"{store.scheme}://{place}"):
        find_model(f"{store.scheme}://{place}")


def test_a_store_that_is_away(proxy, url, model, caplog):
    find_model(url)
    proxy.status = 503
    with caplog.at_level(logging.WARNING):
        assert content(find_model(url).path) == model
    assert "can't be reached" in caplog.text


def test_a_store_that_refuses(proxy, store, url):
    proxy.status = 403
    skip = {"s3": "AWS", "az": "AZURE", "gs": "GOOGLE"}[store.scheme]
    with pytest.raises(CheckpointError, match=rf"may not be read.*{skip}_SKIP_SIGNATURE=1"):
        find_model(url)
