"""Configuration of the documentation site."""

import re

from tacit import __version__

project = "tacit"
author = "the tacit maintainers"
copyright = "the tacit maintainers; Apache-2.0"  # noqa: A001
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
toc_object_entries = False
html_theme = "furo"
html_title = f"tacit {__version__}"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {
    "npt.ArrayLike": "ArrayLike",
    "Floats": "Floats",
    "Integers": "Integers",
    "Number": "Number",
}
autodoc_default_options = {"members": True, "show-inheritance": True}
suppress_warnings = ["autodoc", "ref.python"]


def escape(_app, _what, _name, _obj, _options, lines):
    """Docstrings write absolute values as |x| and variables as round_, which reStructuredText would
    take for substitutions and links.
    """
    lines[:] = [
        line
        if line.lstrip().startswith(">>>")
        else re.sub(r"(?<=\w)_(?=[^\w`]|$)", r"\_", line.replace("|", r"\|"))
        for line in lines
    ]


def setup(app):
    """Hooks of the site."""
    app.connect("autodoc-process-docstring", escape)
