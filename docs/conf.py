"""Configuration of the documentation site."""

import re
from pathlib import Path

from tacit import __version__

ROOT = Path(__file__).parent.parent
project = "tacit"
author = "the tacit maintainers"
copyright = "the tacit maintainers; Apache-2.0"  # noqa: A001
release = version = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "gallery/**/*.ipynb", "gallery/**/*.py", "gallery/**/*.md5"]
toc_object_entries = False
html_theme = "furo"
html_title = f"tacit {__version__}"
html_static_path = ["static"]
html_css_files = ["tacit.css"]
html_show_sphinx = False
html_copy_source = html_show_sourcelink = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {
    "npt.ArrayLike": "ArrayLike",
    "Floats": "Floats",
    "Integers": "Integers",
    "Number": "Number",
}
autodoc_default_options = {"members": True, "show-inheritance": True}
suppress_warnings = ["autodoc", "ref.python", "config.cache"]

# the button copies commands without their prompt and without what they print
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e6,
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib",),
}


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
