"""How Sphinx builds the documentation: `./dev docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Fencepost"
author = "The Fencepost authors"
project_copyright = author
extensions = ["myst_parser", "fencepost_reference"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext", "examples"]
html_theme = "furo"
html_title = "Fencepost"
html_show_copyright = False
html_copy_source = False
highlight_language = "none"
myst_heading_anchors = 3
nitpicky = True
myst_enable_extensions = ["deflist"]
