"""Mutation operators: each rewrites one node of a function's syntax tree at a time.

They are the mistakes that would make a guarantee false without an error: less noise, noise kept, a
check not made, a count off by one, one side of a maximum, a condition not handed on.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy

Rewrite = Callable[[ast.AST], Iterator[tuple[str, ast.AST]]]

# what the rewritten code calls; appended to the module
HELPERS = """

def _mutant_half(value):
    import numpy
    halved = numpy.fix(numpy.asarray(value) / 2).astype(numpy.int64)
    return halved if numpy.ndim(value) else int(halved)


def _mutant_once(make, _kept={}):
    place = make.__code__.co_consts, make.__code__.co_names
    if place not in _kept:
        _kept[place] = make()
    return _kept[place]


def _mutant_seeded(distribution, size=None):
    import numpy
    drawn = distribution.sample(numpy.random.default_rng(0), size)
    return drawn if size is not None else int(drawn)
"""
NEXT: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
OTHER: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
LOAD = ast.Load()
CONDITIONS = {"condition", "conditions", "dropout", "corrupt", "participations", "view", "modulus"}


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def noise(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """A draw is missing, halved, made once for all, or seeded (where it is a distribution's)."""
    if not (isinstance(node, ast.Call) and _called(node) == "draw"):
        return
    text = ast.unparse(node)
    yield "no noise", _expression(f"({text}) * 0")
    yield "half the noise", _expression(f"_mutant_half({text})")
    yield "noise once for all", _expression(f"_mutant_once(lambda: {text})")
    if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in (
        "part",
        "walk",
        "self._walk",
    ):
        given = ", ".join(ast.unparse(part) for part in (node.func.value, *node.args))
        yield "seeded noise", _expression(f"_mutant_seeded({given})")


def limits(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """A comparison is off by one."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            if type(operator) not in NEXT:
                continue
            changed = deepcopy(node)
            changed.ops[place] = NEXT[type(operator)]()
            yield f"{ast.unparse(node)} -> {ast.unparse(changed)}", changed


def checks(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """A rejection, or the call of a check, is left out."""
    if isinstance(node, ast.If) and node.body and isinstance(node.body[-1], ast.Raise):
        changed = deepcopy(node)
        changed.test = ast.Constant(False)
        yield f"no refusal if {ast.unparse(node.test)}", changed
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield f"no {ast.unparse(node)}", ast.Pass()


def counts(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """A whole number is one more."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield f"{node.value} -> {node.value + 1}", ast.Constant(node.value + 1)


def sides(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Of a maximum or minimum of several things only one is looked at."""
    if isinstance(node, ast.Call) and _called(node) in ("max", "min") and len(node.args) > 1:
        for argument in node.args:
            yield f"{ast.unparse(node)} -> {ast.unparse(argument)}", argument


def signs(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Sums become differences, products quotients."""
    if isinstance(node, ast.BinOp) and type(node.op) in OTHER:
        changed = deepcopy(node)
        changed.op = OTHER[type(node.op)]()
        yield f"{ast.unparse(node)} -> {ast.unparse(changed)}", changed


def conditions(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a guarantee rests on is not handed on."""
    if isinstance(node, ast.Call):
        for place, keyword in enumerate(node.keywords):
            if keyword.arg in CONDITIONS:
                changed = deepcopy(node)
                del changed.keywords[place]
                yield f"{_called(node)}() without {keyword.arg}", changed


def swap(old: str, new: str) -> Rewrite:
    """Replace one expression by another wherever it occurs, at least once."""
    wanted = ast.dump(_expression(old))

    def rewrite(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
        read = isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", LOAD), ast.Load)
        if read and ast.dump(node) == wanted:
            yield f"{old} -> {new}", _expression(new)

    return rewrite


class _Put(ast.NodeTransformer):
    def __init__(self, target: ast.AST, new: ast.AST) -> None:
        self.target, self.new = target, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.target else self.generic_visit(node)


def variants(function: ast.AST, rewrite: Rewrite) -> Iterator[tuple[str, ast.AST]]:
    """Every way in which the operator breaks this function, with what it did."""
    for place, node in enumerate(ast.walk(function)):
        for label, new in rewrite(node):
            copy = deepcopy(function)
            target = list(ast.walk(copy))[place]
            yield label, ast.fix_missing_locations(_Put(target, new).visit(copy))
