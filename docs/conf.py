"""The documentation as a site, for Sphinx; its pages are the plain Markdown that GitHub shows."""

from __future__ import annotations

from importlib import metadata

project = "octavo"
version = release = metadata.version("octavo")
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
root_doc = "index"

html_theme = "furo"
html_title = f"octavo {version}"
html_show_copyright = False
html_copy_source = False

# Headings are link targets under the names that GitHub gives them.
myst_heading_anchors = 3
# Words in pages are not ours to turn into links.
myst_enable_extensions: list[str] = []
