"""Copies the package with every sentence reworded: the letters of its words are reversed.

A sentence is a string, or the text of an f-string, of at least three words; docstrings, single
words, identifiers and bytes stay. Nothing that decides may notice.
"""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

WORD = re.compile(r"(?<![\w{<&%\\-])[A-Za-z]{3,}(?![\w}>;-])")
WORDS = 3


def is_sentence(text: str) -> bool:
    """Whether a reader would take it for one: several words, and no markup or pattern."""
    plain = re.fullmatch(r"[^<>\\^$|=*]*", text, re.DOTALL) is not None
    return plain and len(re.findall(r"(?<!\S)[A-Za-z]+[,.;:]?(?=\s|$)", text)) >= WORDS


def backwards(text: str) -> str:
    """The same sentence with every word spelled backwards.

    >>> backwards("at most 1 of {count} is curious")
    'at tsom 1 of {count} is suoiruc'
    """
    return WORD.sub(lambda word: word.group()[::-1], text)


class Reworder(ast.NodeTransformer):
    """Rewords the sentences of a module, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Docstrings stay."""
        if isinstance(node.value, ast.Constant):
            return node
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """One string."""
        if isinstance(node.value, str) and is_sentence(node.value):
            self.count += 1
            return ast.copy_location(ast.Constant(backwards(node.value)), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """All texts of an f-string, if they are one sentence together."""
        texts = [part for part in node.values if isinstance(part, ast.Constant)]
        whole = "7".join(str(part.value) for part in texts)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.generic_visit(part)
        if is_sentence(whole):
            self.count += 1
            for part in texts:
                part.value = backwards(str(part.value))
        return node


def reword(package: Path, target: Path) -> int:
    """Writes the reworded package; returns how many sentences it has."""
    shutil.copytree(package, target, ignore=shutil.ignore_patterns("__pycache__"))
    total = 0
    for path in target.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        reworder = Reworder()
        path.write_text(
            ast.unparse(ast.fix_missing_locations(reworder.visit(tree))) + "\n", "utf-8"
        )
        total += reworder.count
    return total
