"""Lane expressions: one line of text that defines output lane `i`.

A whitelisted subset of Python's expression grammar over the operand names, the
functions of `functions.FUNCTIONS`, integer literals, `i` and comprehension variables.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from bitsynth.errors import SpecError
from bitsynth.isa.functions import FUNCTIONS

_ALLOWED = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.Load, ast.Store, ast.Constant,
    ast.Subscript, ast.Slice, ast.GeneratorExp, ast.comprehension, ast.Add, ast.Sub, ast.Mult,
    ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor, ast.Invert, ast.LShift, ast.RShift,
    ast.USub,
)  # fmt: skip
_BITWISE = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Name, ast.Load,
    ast.BitAnd, ast.BitOr, ast.BitXor, ast.Invert,
)  # fmt: skip
_ALL_OR_NONE = re.compile(r"-\(\w+ >> \d+ & 1\)")
_MAX_CONSTANT = 1 << 64
_MAX_LENGTH = 1000

Evaluate = Callable[..., list[Any]]


def parse(where: str, text: str, names: Collection[str]) -> ast.Expression:
    """Return the checked syntax tree of `text`, which may use `names`; SpecError names `where` and the offence."""
    tree = _syntax(where, text)
    nodes = list(ast.walk(tree))
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    known = {*names, *FUNCTIONS, *bound, "i"}
    for node in nodes:
        if not isinstance(node, _ALLOWED):
            raise SpecError(f"{where}: {type(node).__name__} is not allowed in a lane expression: {text!r}")
        if isinstance(node, ast.Name) and node.id not in known:
            raise SpecError(f"{where}: unknown name {node.id!r} in {text!r}; known: {', '.join(sorted(known))}")
        if isinstance(node, ast.Constant) and not (type(node.value) is int and node.value < _MAX_CONSTANT):
            raise SpecError(f"{where}: constant {node.value!r} is not allowed in a lane expression")
    return tree


def _syntax(where: str, text: str) -> ast.Expression:
    if len(text) > _MAX_LENGTH:
        raise SpecError(f"{where}: a lane expression of {len(text)} characters; at most {_MAX_LENGTH} are read")
    try:
        return ast.parse(text, mode="eval")
    except (SyntaxError, ValueError) as error:
        raise SpecError(f"{where}: lane expression {text!r} does not parse: {error}") from None
    except (RecursionError, MemoryError):
        raise SpecError(f"{where}: lane expression {text[:40]!r}... is nested too deeply") from None


def is_bitwise(tree: ast.Expression) -> bool:
    """Return whether lane `i` depends on the operands' lanes `i` by and, or, xor and not alone.

    A bit of the immediate, spread as `-(n >> 3 & 1)`, sets all bits of a lane or none.
    """
    nodes = list(_without_immediates(tree))
    subscripts = [n for n in nodes if isinstance(n, ast.Subscript)]
    return all(isinstance(n, _BITWISE) for n in nodes) and all(
        isinstance(n.slice, ast.Name) and n.slice.id == "i" for n in subscripts
    )


def _without_immediates(node: ast.AST) -> Iterator[ast.AST]:
    if not (isinstance(node, ast.UnaryOp) and _ALL_OR_NONE.fullmatch(ast.unparse(node))):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _without_immediates(child)


def truth_table(tree: ast.Expression, operands: Sequence[str], numbers: Mapping[str, int]) -> int | None:
    """Return the truth table of lane `i` over bits of the operands' lanes `i`; None if it is no such function.

    Bit x of the table is its value on inputs x, the first operand lowest; `numbers` are the
    immediate and other names the expression may use.
    """
    if not is_bitwise(tree):
        return None
    rows = range(1 << len(operands))
    columns = {name: (sum((x >> k & 1) << x for x in rows),) for k, name in enumerate(operands)}
    table: int = eval(compile(tree, "<lane>", "eval"), {"__builtins__": {}}, {**numbers, **columns, "i": 0})
    return table & ((1 << len(rows)) - 1)


def compile_lanes(tree: ast.Expression, lanes: int, parameters: list[str]) -> Evaluate:
    """Return a function of `parameters` that returns all `lanes` output lanes."""
    comprehension = ast.ListComp(
        elt=tree.body,
        generators=[
            ast.comprehension(
                target=ast.Name("i", ast.Store()),
                iter=ast.Call(ast.Name("range", ast.Load()), [ast.Constant(lanes)], []),
                ifs=[],
                is_async=0,
            )
        ],
    )
    return _function(comprehension, parameters, FUNCTIONS)


def compile_lane(
    tree: ast.Expression, parameters: list[str], functions: Mapping[str, Any] = FUNCTIONS
) -> Callable[..., Any]:
    """Return a function of `parameters` and `i` that returns lane `i`; it may call `functions`."""
    return _function(tree.body, [*parameters, "i"], functions)


def _function(body: ast.expr, parameters: Sequence[str], functions: Mapping[str, Any]) -> Callable[..., Any]:
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(p) for p in parameters], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    function = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, body)))
    code: CodeType = compile(function, "<lane>", "eval")
    result: Callable[..., Any] = eval(code, {"__builtins__": {}, **functions})
    return result
