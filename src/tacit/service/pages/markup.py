"""HTML that cannot be forgotten to be escaped: what is not `Safe` is text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Safe(str):
    """HTML already. Whatever is made of it by formatting is a plain text again."""

    __slots__ = ()


Content = str | Iterable["Content"] | None
Value = str | int | float | bool | None

_VOID = frozenset(("br", "circle", "input", "line", "link", "meta", "path", "rect"))


def tag(name: str, /, *content: Content, **attributes: Value) -> Safe:
    """An element. Attributes lose a last underscore, others become hyphens; None and False leave
    them out.

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
    """Pieces one after another, each escaped unless it is HTML.

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
