"""Models at URLs: fetched by ranges, kept, resumed, and refused with a reason."""

import json
import logging
import os
import threading

import boto3
import pytest
from moto.server import ThreadedMotoServer
from safetensors.numpy import load_file, save_file

from octavo.checkpoints import download, object_store
from octavo.checkpoints.locate import find_model
from octavo.types.errors import CheckpointError
from support.range_server import range_server
from support.small_downloads import CHUNK, small_and_quick  # noqa: F401 (a fixture)
from support.tiny_gguf import write_gguf
from support.tiny_models import save_tiny

pytestmark = pytest.mark.usefixtures("small_and_quick")


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The files of a tiny model in three shards."""
    folder = tmp_path_factory.mktemp("model")
    save_tiny("llama", folder)
    single = folder / "model.safetensors"
    tensors = load_file(single)
    single.unlink()
    names = sorted(tensors)
    weight_map = {}
    for number in range(3):
        shard = f"model-{number + 1:05d}-of-00003.safetensors"
        save_file({name: tensors[name] for name in names[number::3]}, folder / shard)
        weight_map |= dict.fromkeys(names[number::3], shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def web(model):
    files = {f"models/tiny/{name}": data for name, data in model.items()}
    with range_server(files | {"models/tiny/README.md": b"not needed"}) as server:
        yield server


@pytest.fixture(scope="module")
def bucket(model):
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )
    client.create_bucket(Bucket="bucket")
    extra = {
        "onnx/model.onnx": b"x",
        "original/params.json": b"{}",
        "pytorch_model.bin": b"a second copy",
        "consolidated.safetensors": b"a third copy",
        "README.md": b"text",
    }
    for name, data in (model | extra).items():
        client.put_object(Bucket="bucket", Key=f"models/tiny/{name}", Body=data)
    yield client, endpoint
    server.stop()


@pytest.fixture
def aws(bucket, monkeypatch):
    client, endpoint = bucket
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    return client


def content(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".octavo" not in path.parts
    }


def leftovers(folder):
    return [path.name for path in (folder / ".octavo").iterdir() if path.suffix in (".part",)]


def test_a_folder_of_a_bucket(aws, model, tmp_path):
    files = find_model("s3://bucket/models/tiny")
    assert files.path == tmp_path / "cache/models/s3/bucket/models/tiny"
    assert content(files.path) == model
    assert files.kind == "safetensors"
    assert files.name == "s3://bucket/models/tiny"
    assert len(list(files.tensors())) == len(files.tensor_headers())
    assert not leftovers(files.path)


def test_small_files_first_and_a_folder_of_ones_own(aws, model, tmp_path):
    url, root = "s3://bucket/models/tiny/", str(tmp_path / "own")
    files = find_model(url, None, root, weights=False)
    assert files.path == tmp_path / "own/s3/bucket/models/tiny"
    small = {name for name in model if not name.endswith(".safetensors")}
    assert content(files.path).keys() == small
    assert files.config()["hidden_size"] == 72
    whole = find_model(url, None, root, ignore_patterns=["generation_config.json"])
    assert content(whole.path).keys() == set(model)
    assert find_model(url, None, root, load_format="pt").kind == "pt"


def test_what_changed_is_fetched_again(aws, model):
    url = "s3://bucket/changing"
    for name, data in model.items():
        aws.put_object(Bucket="bucket", Key=f"changing/{name}", Body=data)
    before = content(find_model(url).path)
    changed = model["config.json"].replace(b"\n", b"\n ")
    aws.put_object(Bucket="bucket", Key="changing/config.json", Body=changed)
    aws.delete_object(Bucket="bucket", Key="changing/generation_config.json")
    after = content(find_model(url).path)
    assert after["config.json"] == changed
    assert before.keys() - after.keys() == {"generation_config.json"}


def test_lists_that_leave_out_the_quotes_around_tags(aws, model, monkeypatch):
    """As Azure's do; the tags of an answer have them."""
    quoted = object_store.obstore.list

    def unquoted(store):
        for page in quoted(store):
            yield [{**entry, "e_tag": entry["e_tag"].strip('"')} for entry in page]

    monkeypatch.setattr(object_store.obstore, "list", unquoted)
    assert content(find_model("s3://bucket/models/tiny").path) == model


def test_buckets_and_folders_that_are_not_there(aws):
    for url in ("s3://bucket/nothing", "s3://no-bucket/models"):
        with pytest.raises(CheckpointError, match=url):
            find_model(url)


def test_a_web_folder(web, model, tmp_path):
    files = find_model(f"{web.url}/models/tiny")
    assert content(files.path) == model
    host = web.url.removeprefix("http://")
    assert files.path == tmp_path / "cache/models/http" / host / "models/tiny"


def test_ranges_in_parallel(web, model):
    find_model(f"{web.url}/models/tiny")
    name = max(model, key=lambda name: len(model[name]))
    starts = [start for path, start in web.data_requests if path.endswith(name)]
    assert sorted(starts) == list(range(0, len(model[name]), CHUNK))
    assert 1 < web.most_at_once <= download.NUM_THREADS


def test_second_time_only_the_tags_are_asked_for(web):
    url = f"{web.url}/models/tiny"
    find_model(url)
    web.requests.clear()
    find_model(url)
    assert {path for path, _ in web.data_requests} == {"models/tiny/model.safetensors.index.json"}


def test_connections_that_break(web, model):
    web.break_after, web.breaks = 5, 9
    files = find_model(f"{web.url}/models/tiny")
    assert web.breaks == 0
    assert content(files.path) == model


def test_the_next_start_goes_on(web, model):
    url = f"{web.url}/models/tiny"
    find_model(url, weights=False)
    web.break_after, web.breaks = 9, 10**6
    with pytest.raises(CheckpointError, match="What came is kept, and the next start goes on"):
        find_model(url)
    got = len([1 for path, start in web.data_requests if start is not None])
    web.breaks = 0
    web.requests.clear()
    files = find_model(url)
    assert content(files.path) == model
    chunks = sum(
        -(-len(data) // CHUNK) for name, data in model.items() if name.endswith(".safetensors")
    )
    again = [start for path, start in web.data_requests if path.endswith(".safetensors")]
    assert chunks - got < len(again) < chunks - 1
    assert not leftovers(files.path)


def test_what_was_half_fetched_and_has_changed_is_started_anew(web, model):
    url = f"{web.url}/models/tiny"
    find_model(url, weights=False)
    web.break_after, web.breaks = 9, 10**6
    with pytest.raises(CheckpointError):
        find_model(url)
    web.breaks = 0
    for name in model:
        if name.endswith(".safetensors"):
            data = bytearray(model[name])
            data[-1] ^= 1
            web.files[f"models/tiny/{name}"] = bytes(data)
    files = find_model(url)
    for name, data in content(files.path).items():
        assert data == web.files[f"models/tiny/{name}"], name


def test_a_file_that_changes_while_it_is_read(web, monkeypatch):
    name = "models/tiny/model-00001-of-00003.safetensors"
    name = next(path for path in web.files if path.endswith(".safetensors"))
    original = download._fetch_chunks

    def fetch(source, partial, advance):
        web.files[name] = web.files[name][:-1] + b"?"
        original(source, partial, advance)

    monkeypatch.setattr(download, "_fetch_chunks", fetch)
    with pytest.raises(CheckpointError, match="changed while it was read; start again"):
        find_model(f"{web.url}/models/tiny")


@pytest.mark.parametrize("tags", [True, False])
def test_a_server_without_ranges(web, model, tags):
    web.ranges, web.tags = False, tags
    web.break_after, web.breaks = 3, 2
    files = find_model(f"{web.url}/models/tiny")
    assert content(files.path) == model


def test_nobody_answers(web, model, caplog):
    url = f"{web.url}/models/tiny"
    find_model(url, weights=False)
    web.status = 503
    with caplog.at_level(logging.WARNING):
        assert find_model(url, weights=False).config()["hidden_size"] == 72
    assert "can't be reached" in caplog.text
    with pytest.raises(CheckpointError, match="can't be fetched"):
        find_model(url)
    web.status = None
    find_model(url)
    web.status = 503
    assert content(find_model(url).path) == model


@pytest.mark.parametrize("status", [401, 403])
def test_no_permission(web, status):
    web.status = status
    with pytest.raises(CheckpointError, match="may not be read"):
        find_model(f"{web.url}/models/tiny")


def test_gguf_files(tmp_path):
    data = write_gguf(tmp_path / "m.gguf").read_bytes()
    split = {f"s-{number:05d}-of-00002.gguf": data for number in (1, 2)}
    with range_server({"a/m.gguf": data, **{f"a/{n}": d for n, d in split.items()}}) as server:
        files = find_model(f"{server.url}/a/m.gguf", weights=False)
        assert (files.kind, files.path.name) == ("gguf", "m.gguf")
        assert files.config()["hidden_size"] == 64
        found = find_model(f"{server.url}/a/s-00001-of-00002.gguf").path
        assert {path.name for path in found.parent.glob("s-*")} == set(split)
        with pytest.raises(CheckpointError, match=r"absent\.gguf does not exist"):
            find_model(f"{server.url}/a/absent.gguf")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/model", "octavo reads URLs that begin az, gs, http, https, s3"),
        ("https://host/a/../b", "no plain URL"),
        ("https://host/m.gguf?token=1", "no plain URL"),
        ("s3://", "can't be opened"),
    ],
)
def test_other_urls(url, message):
    with pytest.raises(CheckpointError, match=message):
        find_model(url)


def test_revisions_are_for_hubs():
    with pytest.raises(CheckpointError, match="revision='main', but s3://b/m has no revisions"):
        find_model("s3://b/m", "main")


@pytest.mark.parametrize("named", [["../x.safetensors"], [3]])
def test_an_index_that_names_other_places(web, named):
    index = {"weight_map": {str(number): name for number, name in enumerate(named)}}
    web.files["models/tiny/model.safetensors.index.json"] = json.dumps(index).encode()
    with pytest.raises(CheckpointError, match="names something that is no file name"):
        find_model(f"{web.url}/models/tiny")


def test_a_shard_that_is_missing(web):
    name = next(path for path in web.files if path.endswith(".safetensors"))
    del web.files[name]
    with pytest.raises(CheckpointError, match=r"\.safetensors does not exist"):
        find_model(f"{web.url}/models/tiny")


def test_two_at_once_fetch_once(web, model):
    url, found = f"{web.url}/models/tiny", []
    threads = [threading.Thread(target=lambda: found.append(find_model(url))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [content(files.path) for files in found] == [model] * 3
    reads = [read for read in web.data_requests if read[0].endswith(".safetensors")]
    assert len(reads) == len(set(reads))


def test_a_journal_that_is_cut_short_or_nonsense(web, model):
    url = f"{web.url}/models/tiny"
    find_model(url, weights=False)
    web.break_after, web.breaks = 9, 10**6
    with pytest.raises(CheckpointError):
        find_model(url)
    web.breaks = 0
    folder = find_model(url, weights=False).path
    journals = sorted((folder / ".octavo").glob("*.journal"))
    assert journals
    with journals[0].open("a") as journal:
        journal.write("1")  # the rest of the line never came
    for journal in journals[1:]:
        os.truncate(journal, 5)
    assert content(find_model(url).path) == model
