"""HTML builder that escapes all text by default; only `Safe` strings are inserted unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Safe(str):
    """A string of HTML; formatting it yields a plain `str`, which is escaped again."""

    __slots__ = ()


Content = str | Iterable["Content"] | None
Value = str | int | float | bool | None

_VOID = frozenset(("br", "circle", "input", "line", "link", "meta", "path", "rect"))


def tag(name: str, /, *content: Content, **attributes: Value) -> Safe:
    """Render an element.

    Attribute names lose trailing underscores; other underscores become hyphens. Attributes with the
    value None or False are omitted.

    >>> tag("p", "a < b", class_="note", aria_label='"')
    '<p class="note" aria-label="&quot;">a &lt; b</p>'
    """
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Safe(f"<{name}{said}>") if name not in _DRAWN else Safe(f"<{name}{said}/>")
    return Safe(f"<{name}{said}>{join(content)}</{name}>")


_DRAWN = frozenset(("circle", "line", "path", "rect"))


def _attribute(key: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def join(content: Content) -> Safe:
    """Concatenate content, escaping everything but `Safe`.

    >>> join(["<", Safe("<br>"), None])
    '&lt;<br>'
    """
    if content is None:
        return Safe("")
    if isinstance(content, Safe):
        return content
    if isinstance(content, str):
        return Safe(escape(content))
    return Safe("".join(join(piece) for piece in content))
