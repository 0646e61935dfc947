"""HTML rendered from Jinja2 templates that escape all values; `charts` draws SVG.

Each package keeps its templates in its directory `templates`; they may use those of this package.
Jinja2 is imported only when a template is rendered.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from tacit.errors import TacitError
from tacit.html import charts

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_BETWEEN_TAGS = re.compile(r"(?<=>)\s*\n\s*(?=<)")  # indentation of a template, not text


def render(package: str, name: str, **values: Any) -> Markup:
    """Render a template of a package; values are escaped unless they are `Markup`.

    Raises
    ------
    TacitError
        If Jinja2 is not installed.
    """
    return _compact(_environment(package).get_template(name).render(values))


def parts(package: str, name: str, **values: Any) -> dict[str, Markup]:
    """Render the mapping `parts` that a template sets: parts of a page by their name."""
    module: Any = _environment(package).get_template(name).make_module(values)
    return {part: _compact(html) for part, html in module.parts.items()}


def _compact(html: str) -> Markup:
    from markupsafe import Markup

    return Markup(_BETWEEN_TAGS.sub("", html).strip())


@cache
def _environment(package: str) -> Environment:
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise TacitError(
            "jinja2 is missing: pages and reports in HTML need it. "
            "Install it with pip install 'tacit[plot]' (reports) or 'tacit[live]' (pages)."
        ) from error
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(__name__)]),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"comma": "{:,}".format, "percent": "{:.0%}".format}
    made.globals["charts"] = charts
    return made
