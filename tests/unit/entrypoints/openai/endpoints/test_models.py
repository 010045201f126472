"""/v1/models over a fake engine."""


async def test_every_name_is_listed(make_client):
    client = await make_client(served_model_name=("one", "org/two"))
    cards = (await client.get("/v1/models")).json()
    assert cards["object"] == "list"
    assert [card["id"] for card in cards["data"]] == ["one", "org/two"]
    assert cards["data"][0]["max_model_len"] == client.engine.config.model.max_model_len
    assert (await client.get("/v1/models/org/two")).json() == cards["data"][1]


async def test_the_models_place_on_disk_is_not_told(make_client):
    client = await make_client(served_model_name=("one",))
    assert client.engine.config.model.model not in (await client.get("/v1/models")).text


async def test_an_unknown_name(client):
    reply = await client.get("/v1/models/none")
    assert reply.status_code == 404
    assert reply.json()["error"]["type"] == "NotFoundError"


async def test_answers_carry_the_name_that_was_asked_for(make_client):
    client = await make_client(served_model_name=("one", "two"))
    assert (await client.complete(max_tokens=1)).json()["model"] == "one"
    assert (await client.complete(max_tokens=1, model="two")).json()["model"] == "two"
    reply = await client.complete(max_tokens=1, model="three")
    assert reply.status_code == 404
    assert reply.json()["error"]["param"] == "model"
