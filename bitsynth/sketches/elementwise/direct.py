"""Translates a meaning operator by operator: one instruction for each, or for a larger part of the expression.

Inputs and results have lanes of one width, so nothing is narrowed and elements keep the order of channels.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from bitsynth.errors import NoKernel
from bitsynth.isa import lane
from bitsynth.isa.functions import FUNCTIONS
from bitsynth.isa.load import Isa
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.sketches.elementwise.builder import Builder, UnitValue
from bitsynth.spec.elementwise import ElementwiseSpec

_LETTERS = "abc"
_CONDITIONS = ("ult", "slt", "eq", "bit", "ite")


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Yield the one program, of a register's lanes at a time; none if a form is missing."""
    if spec.out == "words" or any(x.lane.bits != spec.out_bits or x.count for x in spec.inputs):
        return
    builder = Builder(isa, spec, isa.table.vector_bits // spec.out_bits)
    try:
        yield builder.finish(_lower(builder, lane.parse(spec.name, spec.meaning, [x.name for x in spec.inputs]).body))
    except NoKernel:
        return


def _lower(builder: Builder, node: ast.expr) -> UnitValue:
    """Return the value of an expression: by one form on the inputs it names, or on the values of its parts."""
    if isinstance(node, ast.Name):
        return builder.input(node.id)
    if isinstance(node, ast.Constant):
        return builder.constant(builder.input(builder.spec.inputs[0].name).type, int(str(node.value)))
    for parts in (_inputs(node), _parts(node, constants=False), _parts(node, constants=True)):
        try:
            return _apply(builder, node, parts)
        except NoKernel:
            continue
    raise NoKernel(f"{builder.isa.name} has no form for {ast.unparse(node)}")


def _apply(builder: Builder, node: ast.expr, parts: Sequence[ast.expr]) -> UnitValue:
    """Return the form that does what `node` says to the values of its `parts`."""
    texts = list(dict.fromkeys(map(ast.unparse, parts)))
    if not 1 <= len(texts) <= len(_LETTERS):
        raise NoKernel(f"{len(texts)} operands")
    letters = dict(zip(texts, _LETTERS, strict=False))
    role = ast.unparse(_Lettered(letters).visit(ast.parse(ast.unparse(node), mode="eval")))
    return builder.map(role, *(_lower(builder, ast.parse(text, mode="eval").body) for text in texts))


class _Lettered(ast.NodeTransformer):
    """Puts the lanes of operands in the place of parts of an expression."""

    def __init__(self, letters: Mapping[str, str]) -> None:
        self._letters = letters

    def visit(self, node: ast.AST) -> ast.AST:
        letter = self._letters.get(ast.unparse(node)) if isinstance(node, ast.expr) else None
        return ast.parse(f"{letter}[i]", mode="eval").body if letter else super().visit(node)


def _inputs(node: ast.expr) -> list[ast.expr]:
    return [x for x in ast.walk(node) if isinstance(x, ast.Name) and x.id not in FUNCTIONS]


def _parts(node: ast.expr, *, constants: bool) -> list[ast.expr]:
    """Return the operands of the outermost operator; choices and their conditions are one operator."""
    match node:
        case ast.BinOp():
            inside = [node.left, node.right]
        case ast.UnaryOp():
            inside = [node.operand]
        case ast.Call():
            inside = [part for x in node.args for part in _through_conditions(x)]
        case _:
            inside = []
    return [x for x in inside if constants or not isinstance(x, ast.Constant)]


def _through_conditions(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CONDITIONS:
        return [part for x in node.args for part in _through_conditions(x)]
    return [node]
