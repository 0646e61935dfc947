"""Configuration of the documentation site."""

import html
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
html_domain_indices = False  # the API reference lists its modules itself
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


def set_style(_conf, _name):
    """How the gallery draws: colours that everybody tells apart, legible on a phone."""
    import matplotlib as mpl

    colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"]
    mpl.rcParams.update(
        {
            "figure.figsize": (5.6, 4.0),
            "axes.prop_cycle": mpl.cycler(
                color=colours, linestyle=["-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1))]
            ),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.alpha": 0.3,
            "lines.linewidth": 2,
        }
    )


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
    "write_computation_times": False,  # those pages load scripts from elsewhere
    "abort_on_example_error": True,
    "image_srcset": ["2x"],
    "reset_modules": ("matplotlib", set_style),
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


EMPTY = r"\s*(?:<p>\s*</p>)?\s*"
LONGEST_WHOLE = 20  # characters; longer names have no room beside others on a phone
LINE = 36  # of a phone
LONGEST_OPTION = 30  # broken after its two hyphens it would read as something else


def tidy(_app, _pagename, _templatename, context, _doctree):
    """Keep names and options whole, break long ones after punctuation only, and leave out heads of
    tables that say nothing.
    """
    if body := context.get("body"):
        body = re.sub(
            rf"<thead>\s*<tr[^>]*>\s*(?:<th[^>]*>{EMPTY}</th>\s*)+</tr>\s*</thead>", "", body
        )
        body = re.sub(r"<code .*?</code>", in_code, body, flags=re.S)
        context["body"] = re.sub(
            r'(?<=<div class="highlight-)(?:console|bash|text)\b.*?</pre>',
            in_console,
            body,
            flags=re.S,
        )


def in_code(found):
    """Inline code, whose words Sphinx has put into spans."""
    return re.sub(r'<span class="pre">([^<]*)</span>', of_word, found.group())


def of_word(found):
    """A word of inline code: marked if it is too long for tables, or for lines, on a phone, with
    places where it may be broken.
    """
    word = html.unescape(found.group(1))
    if len(word) <= (LONGEST_OPTION if word.startswith("-") else LONGEST_WHOLE):
        return found.group()
    parts = re.findall(r"[_./=(,:|]*[^_./=(,:|]+[_./=(,:|]*|.+", word)
    long = "long longer-than-a-line" if len(word) > LINE else "long"
    return f'<span class="pre {long}">{"<wbr>".join(map(html.escape, parts))}</span>'


def in_console(found):
    """Commands, whose words with hyphens are marked."""
    parts = re.split(r"(<[^>]*>)", found.group())
    parts[2::2] = [
        re.sub(r"[^\s&;]*-[^\s&;]*", r'<span class="whole">\g<0></span>', part)
        for part in parts[2::2]
    ]
    return "".join(parts)


def setup(app):
    """Hooks of the site."""
    app.connect("autodoc-process-docstring", escape)
    app.connect("html-page-context", tidy)
