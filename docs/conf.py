"""Sphinx configuration: `python -m sphinx -W docs build/docs` writes the pages to build/docs."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS / "extensions"), str(DOCS.parent)]

import tensorbow  # noqa: E402

project = "TensorBow"
author = "The TensorBow authors"
copyright = author
release = tensorbow.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "plain_docstrings", "reference_pages"]
smartquotes = False  # "--" is the beginning of an option
suppress_warnings = ["ref.python"]  # several classes have a method `run`

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = "TensorBow"
html_static_path = ["_static", "pictures"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b62a8", "color-brand-content": "#0b62a8"},
    "dark_css_variables": {"color-brand-primary": "#6cb6f5", "color-brand-content": "#6cb6f5"},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
