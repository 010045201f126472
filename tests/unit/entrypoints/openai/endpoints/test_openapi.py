"""The description of the API, and the page that shows it."""

import re

from octavo.entrypoints.openai.endpoint import ENDPOINTS


async def test_every_endpoint_is_described(client):
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    for name in ENDPOINTS:
        for endpoint in ENDPOINTS.get(name):
            path = re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path)
            for method in endpoint.methods:
                operation = document["paths"][path][method.lower()]
                assert operation["summary"], path
                assert ("requestBody" in operation) == bool(endpoint.schema), path
    chat = document["components"]["schemas"]["ChatRequest"]
    assert chat["required"] == ["messages"]
    assert "temperature" in chat["properties"]


async def test_every_reference_leads_somewhere(client):
    text = (await client.get("/openapi.json")).text
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    for name in set(re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', text)):
        assert name in schemas


async def test_operations_have_their_own_ids(client):
    paths = (await client.get("/openapi.json")).json()["paths"]
    ids = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(ids) == len(set(ids))


async def test_the_page_loads_nothing_from_elsewhere(make_client):
    client = await make_client(server={"api_key": ("one",)})
    page = await client.get("/docs")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for place in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert "//" not in place
    for path in ("/docs/docs.js", "/docs/docs.css"):
        assert (await client.get(path)).status_code == 200
    assert (await client.get("/openapi.json")).status_code == 401


async def test_invocations_answer_as_the_endpoint_that_is_meant(client):
    text = await client.post("/invocations", json={"prompt": "a", "max_tokens": 3})
    assert text.json()["object"] == "text_completion"
    messages = [{"role": "user", "content": "a"}]
    chat = await client.post("/invocations", json={"messages": messages, "max_tokens": 3})
    assert chat.json()["object"] == "chat.completion"
    reply = await client.post("/invocations", json={"inputs": "a"})
    assert reply.status_code == 400
    assert "messages" in reply.json()["error"]["message"]
