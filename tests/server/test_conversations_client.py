"""OpenAI's official client for /v1/conversations over a socket, the engine faked."""

import threading

import openai
import pytest

from support.fake_async_llm import SCRIPT
from support.http_server import wait_until

ONE = {"role": "user", "content": "one"}
TWO = {"type": "message", "role": "assistant", "content": "two"}


def ask(client, words, **fields):
    return client.responses.create(model="", input=words, **{"max_output_tokens": 3, **fields})


def texts(client, conversation_id, **options):
    options = {"order": "asc", **options}
    items = client.conversations.items.list(conversation_id, **options)
    return [item.content[0].text for item in items]


def test_a_conversation_is_made_read_changed_and_deleted(client):
    made = client.conversations.create(metadata={"a": "b"}, items=[ONE, TWO])
    assert (made.object, made.metadata) == ("conversation", {"a": "b"})
    assert client.conversations.retrieve(made.id) == made
    changed = client.conversations.update(made.id, metadata={"c": "d"})
    assert changed.metadata == {"c": "d"}
    assert client.conversations.retrieve(made.id) == changed
    first, second = client.conversations.items.list(made.id, order="asc").data
    assert (first.type, first.role, first.status) == ("message", "user", "completed")
    assert (first.content[0].type, second.content[0].type) == ("input_text", "output_text")
    gone = client.conversations.delete(made.id)
    assert (gone.id, gone.deleted, gone.object) == (made.id, True, "conversation.deleted")
    for call in (client.conversations.retrieve, client.conversations.delete):
        with pytest.raises(openai.NotFoundError, match="no conversation"):
            call(made.id)
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, "a", conversation=made.id)
    assert caught.value.param == "conversation"


def test_items_are_listed_in_pages_added_and_taken_out(client):
    made = client.conversations.create()
    assert client.conversations.items.list(made.id).data == []
    items = [{"role": "user", "content": str(i)} for i in range(7)]
    added = client.conversations.items.create(made.id, items=items)
    assert [item.content[0].text for item in added.data] == list("0123456")
    assert (added.first_id, added.last_id) == (added.data[0].id, added.data[-1].id)
    assert texts(client, made.id, limit=3) == list("0123456")  # the client asks for every page
    page = client.conversations.items.list(made.id, limit=3)
    assert [item.content[0].text for item in page.data] == ["6", "5", "4"]
    assert page.has_more
    one = added.data[2]
    assert client.conversations.items.retrieve(one.id, conversation_id=made.id) == one
    left = client.conversations.items.delete(one.id, conversation_id=made.id)
    assert left == made
    assert texts(client, made.id) == list("013456")
    with pytest.raises(openai.NotFoundError, match="no item"):
        client.conversations.items.retrieve(one.id, conversation_id=made.id)


def test_items_keep_their_ids_unless_they_are_taken(client):
    made = client.conversations.create(items=[{**ONE, "id": "mine"}])
    (again,) = client.conversations.items.create(made.id, items=[{**ONE, "id": "mine"}]).data
    ids = [item.id for item in client.conversations.items.list(made.id, order="asc")]
    assert ids == ["mine", again.id]
    assert again.id != "mine"


def test_responses_go_on_from_a_conversation_and_add_to_it(client, server):
    made = client.conversations.create(items=[ONE, TWO])
    reply = ask(client, "three", conversation=made.id, instructions="s")
    assert reply.conversation.id == made.id
    prompt = server.engine.seen[-1][0]["prompt"]
    assert prompt == "system:s\nuser:one\nassistant:two\nuser:three\nassistant:"
    assert texts(client, made.id) == ["one", "two", "three", SCRIPT[:3]]
    for _ in ask(client, "four", conversation={"id": made.id}, stream=True, store=False):
        pass
    prompt = server.engine.seen[-1][0]["prompt"]
    assert prompt == (
        f"user:one\nassistant:two\nuser:three\nassistant:{SCRIPT[:3]}\nuser:four\nassistant:"
    )
    assert texts(client, made.id)[4:] == ["four", SCRIPT[:3]]
    later = ask(client, "five", conversation=made.id, background=True)
    wait_until(lambda: client.responses.retrieve(later.id).status == "incomplete", "it ends")
    assert texts(client, made.id)[6:] == ["five", SCRIPT[:3]]
    ids = [item.id for item in client.conversations.items.list(made.id)]
    assert len(set(ids)) == len(ids) == 8


def test_a_response_that_fails_or_is_left_adds_nothing(client, server):
    made = client.conversations.create(items=[ONE])
    with pytest.raises(openai.InternalServerError):
        ask(client, "x", conversation=made.id, extra_body={"vllm_xargs": {"error_at": 0}})
    slow = {"vllm_xargs": {"sleep": 0.05}}
    stream = ask(
        client, "x", conversation=made.id, stream=True, max_output_tokens=200, extra_body=slow
    )
    next(iter(stream))
    stream.close()
    wait_until(lambda: server.engine.num_running == 0, "the request has ended")
    assert texts(client, made.id) == ["one"]


def test_an_answer_stands_though_its_conversation_is_gone(client):
    made = client.conversations.create()
    slow = {"vllm_xargs": {"sleep": 0.02}}
    events = ask(client, "x", conversation=made.id, stream=True, extra_body=slow)
    first = next(iter(events))
    client.conversations.delete(made.id)
    *_, last = events
    assert last.type == "response.incomplete"
    assert client.responses.retrieve(first.response.id).output_text == SCRIPT[:3]


def test_nothing_is_lost_when_many_add_at_once(make_server, tmp_path):
    store = f"sqlite:///{tmp_path}/store.db"
    urls = [f"{make_server(responses_store=store).url}/v1" for _ in range(2)]
    clients = [openai.OpenAI(base_url=url, api_key="x", max_retries=0) for url in urls]
    made = clients[0].conversations.create()

    def add(client, name):
        for i in range(4):
            item = {"role": "user", "content": f"{name}{i}"}
            client.conversations.items.create(made.id, items=[item])

    threads = [threading.Thread(target=add, args=(clients[i % 2], "abcd"[i])) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(clients[1], made.id, limit=100)
    for client in clients:
        client.close()
    assert sorted(found) == sorted(f"{name}{i}" for name in "abcd" for i in range(4))
    for name in "abcd":
        assert [text for text in found if text[0] == name] == [f"{name}{i}" for i in range(4)]


def test_clients_see_their_own_conversations_only(make_server):
    server = make_server(api_key=("one", "two"))
    one, two = (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)
        for key in ("one", "two")
    )
    with one, two:
        made = one.conversations.create(items=[ONE])
        for call in (
            lambda: two.conversations.retrieve(made.id),
            lambda: two.conversations.delete(made.id),
            lambda: two.conversations.items.list(made.id),
            lambda: two.conversations.items.create(made.id, items=[ONE]),
            lambda: ask(two, "x", conversation=made.id),
        ):
            with pytest.raises(openai.NotFoundError):
                call()
        assert one.conversations.retrieve(made.id).id == made.id


def test_a_response_is_no_conversation(client):
    reply = ask(client, "a")
    with pytest.raises(openai.NotFoundError, match="no conversation"):
        client.conversations.retrieve(reply.id)
    made = client.conversations.create()
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError, match="no stored response"):
            call(made.id)
    assert client.conversations.retrieve(made.id) == made


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([{"role": "nobody", "content": "a"}], "items[0].role"),
        ([ONE, {"type": "function_call", "name": "f"}], "items[1].call_id"),
        ([{"type": "web_search_call"}], "items[0]"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "items[0].content[0]"),
    ],
)
def test_items_that_no_response_could_go_on_from_are_refused(client, items, param):
    made = client.conversations.create()
    for call in (
        lambda: client.conversations.create(items=items),
        lambda: client.conversations.items.create(made.id, items=items),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            call()
        assert caught.value.param == param


@pytest.mark.parametrize(
    ("query", "param"),
    [({"limit": 0}, "limit"), ({"limit": 101}, "limit"), ({"order": "up"}, "order"),
     ({"include": ["x"]}, "include[]")],
)  # fmt: skip
def test_pages_that_are_not_there(client, query, param):
    made = client.conversations.create()
    with pytest.raises(openai.BadRequestError) as caught:
        client.conversations.items.list(made.id, **query)
    assert caught.value.param == param


def test_a_server_that_keeps_nothing_says_so(make_server):
    server = make_server(responses_store_size=0)
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="--responses-store-size"),
    ):
        client.conversations.create()
