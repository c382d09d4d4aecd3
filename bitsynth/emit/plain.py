"""Plain C (fallback code) of elementwise specs that have no proved program.

The elements of a unit are computed in loops that compilers vectorize: one for the results, and before it one for each
float product that something is added to, and one for each sum of many terms.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bitsynth.emit.elementwise import PARAMETERS, opening
from bitsynth.emit.plain_terms import CARRIERS, CDomain, Term, carrier, ctype
from bitsynth.emit.render import block, indent_lines
from bitsynth.errors import SpecError
from bitsynth.isa import floats, lane
from bitsynth.isa.bits import Bits, total, trunc
from bitsynth.isa.functions import FUNCTIONS
from bitsynth.kernel.elementwise.program import PlainProgram
from bitsynth.spec.elementwise import MAX_UNROLLED_LEVELS, WORD_BITS, ElementInput
from bitsynth.spec.words import WordsSpec

LOOP_INDEX = "k"
"""The C variable of loops over the terms of a sum."""


class InputValues:
    """The `count` values of an input, as an expression indexes them.

    Each element has its own, value k a `unit` behind value k - 1; or all have the same, if the unit is 0.
    """

    def __init__(self, domain: CDomain, w: int, count: int, array: str, unit: int, kind: str = "") -> None:
        self.domain, self.w, self.count, self.array, self.unit, self.kind = domain, w, count, array, unit, kind

    def __getitem__(self, k: int | Term) -> Bits:
        if isinstance(k, int) and k >= self.count:
            raise IndexError(k)
        text, args = (str(k * max(1, self.unit)), ()) if isinstance(k, int) else (self._at(k.text), k.args)
        place = f"{self.array}[{text}{' + j' if self.unit else ''}]"
        return Bits(self.domain, self.w, Term(place, self.w, args, self.kind))

    def _at(self, number: str) -> str:
        return f"({number}) * {self.unit}" if self.unit else number

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Bits]:
        return (self[k] for k in range(self.count))


def functions(domain: CDomain) -> dict[str, Any]:
    """Return the functions of lane expressions in `domain`; some have a form of their own in C, such as a loop.

    Expressions call `sum_over` where the lane language has a sum over a range, see `SumsOverRanges`.
    """
    return {**FUNCTIONS, **{name: _shift(domain, name) for name in ("asr", "lsr", "lsl")}} | {
        "sum_over": lambda numbers, term: _sum_over(domain, numbers, term),
        "lookup": _look_up,
        "reached": partial(floats.reached, lookup=_entry),
    }


class SumsOverRanges(ast.NodeTransformer):
    """Replaces each sum over a range by a call that has the range, and the term as a function of its number.

    Given:   sum(zext(bit(slt(t[k], s)), 8) for k in range(255))
    Result:  sum_over(range(255), lambda k: zext(bit(slt(t[k], s)), 8))     a loop in C, with the term written once
    """

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Return the call itself, or the one that replaces it."""
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="sum"), args=[ast.GeneratorExp(elt=term, generators=[loop])]):
                match loop:
                    case ast.comprehension(ast.Name(id=k), ast.Call(func=ast.Name(id="range")) as numbers, ifs=[]):
                        one = ast.arguments(
                            posonlyargs=[], args=[ast.arg(k)], kwonlyargs=[], kw_defaults=[], defaults=[]
                        )
                        return ast.Call(ast.Name("sum_over", ast.Load()), [numbers, ast.Lambda(one, term)], [])
        return node


def _shift(domain: CDomain, name: str) -> Any:
    def shift(x: Bits, n: Bits | int) -> Bits:
        if x.w not in CARRIERS:
            return Bits(domain, x.w, FUNCTIONS[name](x, n).v)
        by = n.v if isinstance(n, Bits) else domain.const(min(n, x.w), 8)
        return Bits(domain, x.w, domain.shift(x.v, by, x.w, name))

    return shift


def _sum_over(domain: CDomain, numbers: range, term: Callable[[int | Term], Bits]) -> Bits:
    """Return the sum of `term` of each number: in a loop, if there are many from 0 on."""
    if len(numbers) <= MAX_UNROLLED_LEVELS or numbers.start or numbers.step != 1:
        return total(map(term, numbers))
    one = term(Term(LOOP_INDEX, 64))
    return Bits(domain, one.w, domain.add_up(one.v, len(numbers), one.w))


def _look_up(table: Any, index: Bits) -> Bits:
    if not isinstance(table, InputValues):
        return FUNCTIONS["lookup"](table, index)  # type: ignore[no-any-return]
    return table[Term(f"{{0}} % {table.count}u", 32, (index.v,))]


def _entry(table: Any, index: Bits) -> Bits:
    """Return an entry of a table that is known to have one at the index."""
    # Vector registers hold more signed indices than unsigned ones, which are extended to the bits of a pointer.
    entry: Bits = table[Term("(int32_t){0}", 32, (index.v,))]
    return entry


HEADER = "bs_plain.h"


def function(program: PlainProgram, name: str) -> str:
    """Return the static functions of a program: one for a unit, and one for whole rows, called `name`."""
    return _Text(program, name).text()


class _Text:
    """The statements of one program; each input is called x_ and its name."""

    def __init__(self, program: PlainProgram, name: str) -> None:
        self.program, self.spec, self.name = program, program.spec, name
        self.others = [x for x in self.spec.inputs if x.per == "element"][1:]
        if len(self.others) > 1 or any(x.per == "iteration" for x in self.spec.inputs):
            raise SpecError(
                f"{self.spec.name}: plain C has one input of elements besides the first, and none of iterations"
            )

    def text(self) -> str:
        unit = [f"static inline void {self.name}_unit({', '.join(self._parameters())})", "{", *self._unit(), "}", ""]
        return "\n".join([*unit, f"static void {self.name}({PARAMETERS})", "{", *indent_lines(self._rows()), "}"])

    def _parameters(self) -> Iterator[str]:
        """Yield pointers to elements, numbers that all elements of a row share, and the pointer to results.

        Results may take the place of what a second operand is added to.
        """
        first, alone = self.spec.inputs[0], "" if self.others else "restrict "
        for x in self.spec.inputs:
            kind = f"bs_u{carrier(x.lane.bits)} *{alone if x == first else 'restrict '}"
            pointed = not x.is_shared or x.count
            yield f"const {kind}x_{x.name}" if pointed else f"{ctype(x.lane.bits)} x_{x.name}"
        yield f"bs_u{64 if self.spec.planes else carrier(self.spec.out_bits)} *{alone}to"

    def _unit(self) -> list[str]:
        """Return the loops of a unit."""
        domain = CDomain()
        result, arrays, lines = self._meaning(domain), dict[Term, str](), list[str]()
        for number, term in enumerate(domain.kept):
            lines += self._store(term, arrays, f"a{number}")
            arrays[term] = f"a{number}[j]"
        to = "codes" if self.spec.planes else "to"
        body = Body(arrays)
        body.store(f"{to}[j]", result.v)
        loop = self._loop(body)
        if self.spec.planes:
            unit = self.program.unit
            loop = [f"uint8_t codes[{unit}];", *loop, f"bs_pack_codes({self.spec.planes}, {unit}, codes, to);"]
        return indent_lines([*lines, *loop])

    def _meaning(self, domain: CDomain) -> Bits:
        given = {x.name: self._input(domain, x) for x in self.spec.inputs}
        return trunc(evaluate(domain, self.spec.meaning, given, self.spec.name), self.spec.out_bits)

    def _input(self, domain: CDomain, input_: ElementInput) -> Bits | InputValues:
        """Return an input as the meaning reads it."""
        w, name = input_.lane.bits, f"x_{input_.name}"
        if input_.count:
            return InputValues(domain, w, input_.count, name, 0 if input_.is_shared else self.program.unit)
        return Bits(domain, w, Term(name if input_.is_shared else f"{name}[j]", w))

    def _loop(self, body: Body) -> list[str]:
        return block(f"for (size_t j = 0; j < {self.program.unit}; ++j)", body.lines)

    def _store(self, term: Term, arrays: Mapping[Term, str], name: str) -> list[str]:
        """Return the loop that leaves a term of the unit's elements in an array."""
        body, kind = Body(arrays), term.ctype
        if term.is_product:
            body.store(f"{name}[j]", term)
            return [f"{kind} {name}[{self.program.unit}];", *self._loop(body), f"BS_ROUNDED_ARRAY({name});"]
        value = body.name(term.args[0])
        body.lines.append(f"{name}[j] = ({kind})({name}[j] + {value});")
        terms = f"for (size_t {LOOP_INDEX} = 0; {LOOP_INDEX} < {term.iterations}; ++{LOOP_INDEX})"
        return [f"{kind} {name}[{self.program.unit}] = {{0}};", *block(terms, self._loop(body))]

    def _rows(self) -> list[str]:
        """Return numbers that all elements share, then units of columns, and every row of each."""
        numbers = [line for x in self.spec.inputs if x.per == "all" and not x.count for line in self._number(x)]
        head = f"for (size_t column = 0; column < columns; column += {self.program.unit})"
        return [*opening(self.spec), *numbers, *block(head, self._column())]

    def _number(self, input_: ElementInput) -> list[str]:
        name, at = f"x_{input_.name}", self.program.offset(input_.name)
        return [
            f"{ctype(input_.lane.bits)} {name};",
            f"memcpy(&{name}, (const uint8_t *)numbers + {at}, sizeof {name});",
        ]

    def _column(self) -> list[str]:
        """Return the statements of one unit of columns."""
        first = self.spec.inputs[0]
        lines = [f"const uint8_t *in = (const uint8_t *)from + column * {first.lane.bits // 8};"]
        lines += [f"const uint8_t *more = (const uint8_t *)other + column * {x.lane.bits // 8};" for x in self.others]
        # Words: bits of a column are a byte of each plane of eight columns.
        size = f"/ 8 * {self.spec.planes}" if self.spec.planes else f"* {self.spec.out_bits // 8}"
        lines.append(f"uint8_t *out = (uint8_t *)to + column {size};")
        out = f"bs_u{64 if self.spec.planes else self.spec.out_bits}"
        row = [f"{self.name}_unit({', '.join([*map(self._argument, self.spec.inputs), f'({out} *)(void *)out'])});"]
        row += ["in += from_apart;", *(["more += other_apart;"] if self.others else []), "out += to_apart;"]
        lines += block("for (size_t i = 0; i < rows; ++i)", row)
        if self.program.constant_bytes:
            lines.append(f"constant += {self.program.constant_bytes};")
        return lines

    def _argument(self, input_: ElementInput) -> str:
        kind = f"(const bs_u{input_.lane.bits} *)(const void *)"
        if input_.per == "element":
            return kind + ("in" if input_ == self.spec.inputs[0] else "more")
        if input_.per == "row":
            return f"({ctype(input_.lane.bits)})row[i]"
        if input_.per == "all" and not input_.count:
            return f"x_{input_.name}"
        base = "constant" if input_.per == "channel" else "(const uint8_t *)numbers"
        return f"{kind}({base} + {self.program.offset(input_.name)})"


class Body:
    """The statements of a loop's body, in which each expression is computed once.

    Attributes:
        arrays: The terms that loops before it have computed, and where they are.
    """

    def __init__(self, arrays: Mapping[Term, str]) -> None:
        self.arrays, self.lines, self.names = arrays, list[str](), dict[str, str]()

    def name(self, term: Term) -> str:
        """Return the variable that has the term's value, or the number that it is."""
        if term.number is not None:
            return term.text
        text = self.arrays.get(term) or term.text.format(*map(self.name, term.args))
        if text.isidentifier():
            return text
        if text not in self.names:
            self.names[text] = f"v{len(self.names)}"
            self.lines.append(f"const {term.ctype} {self.names[text]} = {text};")
        return self.names[text]

    def store(self, place: str, term: Term, operator: str = "=") -> None:
        """Write the term's value to an element of an array."""
        self.lines.append(f"{place} {operator} {self.name(term)};")


def evaluate(domain: CDomain, text: str, given: Mapping[str, Bits | InputValues], where: str = "loops") -> Bits:
    """Return the value in C of a lane expression of the names that are `given`."""
    tree = SumsOverRanges().visit(lane.parse(where, text, given))
    value: Bits = lane.compile_lane(tree, [*given], functions(domain))(*given.values(), 0)
    return value


_WORDS_PARAMETERS = "size_t rows, size_t count, const uint8_t *from, size_t from_apart, uint8_t *to, size_t to_apart"


def words_function(spec: WordsSpec) -> str:
    """Return the static function of `spec` on `rows` of `count` words: operands are those at `from` and `to`."""
    domain, body = CDomain(), Body({})
    a, b = ([Bits(domain, WORD_BITS, Term(f"{x}[j + {k}]", WORD_BITS)) for k in range(spec.planes)] for x in "ab")
    for k, word in enumerate(spec.values(a, b)):
        body.store(f"b[j + {k}]", word.v)
    row = ["const bs_u64 *restrict a = (const void *)from;", "bs_u64 *restrict b = (void *)to;"]
    row += block(f"for (size_t j = 0; j < count; j += {spec.planes})", body.lines)
    rows = block("for (; rows > 0; --rows, from += from_apart, to += to_apart)", row)
    return "\n".join(block(f"static void {spec.name}({_WORDS_PARAMETERS})", rows)).replace(") {", ")\n{", 1)
