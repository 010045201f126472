"""The chat page's files: complete, offline and strict."""

import re

import httpx
import pytest
from starlette.applications import Starlette

from octavo.entrypoints.console.pages import console_routes


@pytest.fixture
def client():
    transport = httpx.ASGITransport(Starlette(routes=console_routes()))
    return httpx.AsyncClient(transport=transport, base_url="http://server")


async def test_every_file_the_page_names_is_there(client):
    page = await client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    names = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    assert "console/chat.js" in names
    for name in names:
        assert (await client.get(f"/{name}")).status_code == 200
    script = (await client.get("/console/chat.js")).text
    for name in re.findall(r'from "\./([^"]+)"', script):
        assert (await client.get(f"/console/{name}")).status_code == 200


async def test_nothing_comes_from_elsewhere(client):
    for route in console_routes():
        text = (await client.get(route.path)).text
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []


async def test_model_output_can_never_become_markup(client):
    for route in console_routes():
        text = (await client.get(route.path)).text
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    policy = (await client.get("/")).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_scripts_and_styles_are_in_files_not_in_the_page():
    async def page():
        return None

    routes = {route.path for route in console_routes()}
    assert {"/", "/console/chat.js", "/console/chat.css"} <= routes
