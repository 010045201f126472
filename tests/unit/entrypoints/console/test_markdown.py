"""The page's Markdown, run by Node.js where there is one, over a stand-in for the DOM."""

import json
import shutil
import subprocess
from importlib import resources

import pytest

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")

DOM = """
class Node {
  constructor(tag) { this.tag = tag; this.children = []; this.dataset = {}; }
  append(...nodes) { this.children.push(...nodes); }
  set textContent(text) { this.children = [text]; }
}
globalThis.document = {
  createDocumentFragment: () => new Node(""),
  createElement: (tag) => new Node(tag),
};
const show = (n) =>
  typeof n === "string" ? n : `<${n.tag}>${n.children.map(show).join("")}</${n.tag}>`;
const { renderMarkdown } = await import(process.argv[1]);
const texts = JSON.parse(process.argv[2]);
console.log(JSON.stringify(texts.map((text) => show(renderMarkdown(text)).slice(2, -3))));
"""


def render(tmp_path, *texts):
    module = tmp_path / "markdown.mjs"
    module.write_bytes(
        resources.files("octavo.entrypoints.console").joinpath("markdown.js").read_bytes()
    )
    command = ["node", "--input-type=module", "--eval", DOM, "--", str(module), json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_blocks_and_marks(tmp_path):
    cases = {
        "a **b** *c* `d`": "<p>a <strong>b</strong> <em>c</em> <code>d</code></p>",
        "2 * 3 * 4 **open": "<p>2 * 3 * 4 **open</p>",
        "`a``b` ``c`d``": "<p><code>a``b</code> <code>c`d</code></p>",
        "# T\ntext": "<h2>T</h2><p>text</p>",
        "- a\n- b": "<ul><li>a</li><li>b</li></ul>",
        "1. a\n2. b": "<ol><li>a</li><li>b</li></ol>",
        "```py\n*x*\n```\nafter": "<div><pre><code>*x*</code></pre><button>Copy</button></div>"
        "<p>after</p>",
        "```\nnot closed": "<div><pre><code>not closed</code></pre><button>Copy</button></div>",
        "<b>x</b>": "<p><b>x</b></p>",
    }
    assert render(tmp_path, *cases) == list(cases.values())


def test_marks_without_a_partner_take_no_time(tmp_path):
    degenerate = [
        "x " + mark * 8000 + " y" for mark in ("`", "*", "**a", "*a", "`*", "` a", "- \n")
    ]
    assert len(render(tmp_path, *degenerate)) == len(degenerate)
