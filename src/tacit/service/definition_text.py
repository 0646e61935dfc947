"""The text of a definition file as plain data: TOML or YAML, every number exact."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tacit.errors import InvalidFile, TacitError, toml_problem
from tacit.readers import shown


class DefinitionError(InvalidFile):
    """All errors of a definition; `problems` lists them one by one."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("the definition", problems)


def document_of(text: str) -> Mapping[str, Any]:
    """The entries of a definition in TOML or YAML.

    >>> document_of('levels = 4'), document_of('levels: 4')
    ({'levels': Decimal('4')}, {'levels': '4'})
    """
    return _yaml(text) if _is_yaml(text) else _toml(text)


def _toml(text: str) -> dict[str, Any]:
    """Parse TOML with every number as an exact decimal."""
    try:
        found = _exact(tomllib.loads(text, parse_float=Decimal))
    except ValueError as problem:
        reason = toml_problem(text, problem)
        raise DefinitionError([f"the file is not TOML: {reason}"]) from None
    except (ArithmeticError, RecursionError) as problem:
        raise DefinitionError(
            [f"the file is not TOML ({problem}): write a new file with tacit experiment new"]
        ) from None
    assert isinstance(found, dict)
    return found


def _exact(value: object) -> object:
    if isinstance(value, dict):
        return {name: _exact(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_exact(one) for one in value]
    return Decimal(value) if type(value) is int else value


def _is_yaml(text: str) -> bool:
    """Detect YAML by the first significant line.

    `name:` and `- ` are YAML; `name =` and `[name]` are TOML.
    """
    said = (line.strip() for line in text.splitlines())
    first = next((line for line in said if line and not line.startswith("#")), "")
    return bool(re.match(r"""(---|-\s|["']?[\w.-]+["']?\s*:)""", first))


def _yaml(text: str) -> dict[str, Any]:
    """Parse YAML with every scalar as text, without type guessing and without aliases."""
    try:
        import yaml
    except ImportError:
        raise TacitError(
            "PyYAML is missing, which YAML files need: pip install 'tacit[live]', or write TOML"
        ) from None
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        document = None if root is None else _node_content(root, set())
    except (yaml.YAMLError, RecursionError) as problem:
        reason = " ".join(str(problem).split())
        raise DefinitionError([f"the file is not YAML ({reason}): correct that line"]) from None
    if not isinstance(document, dict):
        raise DefinitionError(
            ["the file is a list or a word: must have entries such as question: …"]
        )
    return document


def _node_content(node: Any, seen: set[int]) -> Any:
    """The content of a YAML node as texts, lists and mappings."""
    line = node.start_mark.line + 1
    if id(node) in seen:
        raise DefinitionError(
            [f"line {line} is used by an alias (*): write its content instead of the alias"]
        )
    seen.add(id(node))
    if node.id == "scalar":
        return node.value
    if node.id == "sequence":
        return [_node_content(entry, seen) for entry in node.value]
    found: dict[str, Any] = {}
    for name, value in node.value:
        key = _node_content(name, seen)
        if not isinstance(key, str) or key in found:
            raise DefinitionError(
                [f"line {name.start_mark.line + 1} names {shown(key)} a second time: name it once"]
            )
        found[key] = _node_content(value, seen)
    return found
