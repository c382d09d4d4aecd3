"""C statements of programs: one declaration for each step, and casts where a register changes its type."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from bitsynth.emit.render import block
from bitsynth.errors import SpecError
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.types import WORD, VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.program import Kernel
from bitsynth.kernel.straight_line import constant_load

Rename = Callable[[Value], str]
"""A function from a value to its name in C."""
_ONE_CALL = re.compile(r"\w+\([^()]*\)", re.ASCII)
_LOADED_WORD = """typedef uint64_t bs_word __attribute__((may_alias, aligned(1)));
#define WORD(p) (*(const volatile bs_word *)(p))"""


@dataclass
class Scope:
    """C variables in sight and their vector types; `macros` are the definitions the text of a file needs.

    Only the instructions `forms` are written, which a proof covers. `pinning` is the statement that keeps a value
    in its register, the set's `pin` if it is empty. With `ties`, held values are tied for clang, which otherwise
    separates instructions of the scalar last row from the vector instructions to issue with.
    """

    isa: Isa
    forms: Collection[str]
    types: dict[str, VecType] = field(default_factory=dict)
    macros: dict[str, str] = field(default_factory=dict)
    pinning: str = ""
    ties: bool = False

    def inner(self) -> Scope:
        """Return a scope inside this one, of the same file."""
        return Scope(self.isa, self.forms, dict(self.types), self.macros, self.pinning, self.ties)

    def ctype(self, kind: VecType) -> str:
        """Return the C type of a register."""
        try:
            return self.isa.table.ctype[str(kind)]
        except KeyError:
            raise SpecError(f"{self.isa.name} names no C type for {kind}") from None

    def declare(self, name: str, kind: VecType, value: str) -> str:
        """Return the declaration `type name = value;`."""
        self.types[name] = kind
        return f"{self.ctype(kind)} {name} = {value};"

    def view(self, name: str, want: VecType) -> str:
        """Return the register `name` as a `want`."""
        return self.cast(name, self.types[name], want)

    def cast(self, value: str, have: VecType, want: VecType) -> str:
        """Return the expression `value`, a register of type `have`, as a `want`."""
        if have == want or (have.in_general and want.in_general):
            return value
        return self.isa.table.cast.format(q=want.q, to=f"{want}", frm=f"{have}", x=value)

    def call(self, instr: Instr, args: Iterable[str], imm: int = 0, to: str = "") -> str:
        """Return the expression of an instruction: its C if that is one call, else a macro of its form's name.

        SpecError for a form that no proof covers.
        """
        if instr.name not in self.forms:
            raise SpecError(
                f"{instr.isa}: {instr.name} is written as C, and is none of the forms that the proof covers"
            )
        if _ONE_CALL.fullmatch(instr.text) and not instr.clang:
            return instr.render(list(args), imm, to)
        name = instr.name.replace(".", "_")
        holes = [
            *(["to"] if instr.store else []),
            *(o.name for o in instr.operands),
            *([instr.imm[0]] if instr.imm else []),
        ]
        if name not in self.macros:
            defined = [
                f"#define {name}({', '.join(holes)}) {text.format(**{x: x for x in holes})}" for text in instr.texts
            ]
            self.macros[name] = (
                f"#ifdef __clang__\n{defined[1]}\n#else\n{defined[0]}\n#endif" if instr.clang else defined[0]
            )
        given = [*([to] if instr.store else []), *args, *([str(imm)] if instr.imm else [])]
        return f"{name}({', '.join(given)})"

    def value(self, step: Step, rename: Rename) -> str:
        """Return the expression of one step; `rename` gives the C names of values."""
        instr = self.isa[step.op]
        args = [self.view(rename(a), o.type) for a, o in zip(step.args, instr.operands, strict=True)]
        return self.call(instr, args, step.imm)

    def step(self, step: Step, rename: Rename) -> str:
        """Return the statement of one step."""
        return self.declare(rename(step.dst), self.isa[step.op].out, self.value(step, rename))

    def steps(self, program: Iterable[Step], rename: Rename = str) -> list[str]:
        """Return the statements of a program."""
        return [self.step(s, rename) for s in program]

    def load(self, op: str, name: str, pointer: str, view: VecType | None = None) -> str:
        """Return a register from memory, declared as the type it is used at."""
        kind = view or self.isa[op].out
        return self.declare(name, kind, self.write_load(op, pointer, kind))

    def write_load(self, op: str, pointer: str, view: VecType) -> str:
        """Return the expression of a register from memory, as a `view`."""
        instr = self.isa[op]
        return self.cast(self.call(instr, [pointer]), instr.out, view)

    def zero(self, op: str, kind: VecType) -> str:
        """Return the expression of a register of zeros, which `op` loads but for a general-purpose one."""
        return "0" if kind.in_general else self.write_load(op, "zero", kind)

    def store(self, op: str, name: str, pointer: str) -> str:
        """Return a register to memory."""
        instr = self.isa[op]
        return self.call(instr, [self.view(name, instr.operands[0].type)], to=pointer) + ";"

    def address(self, place: str) -> str:
        """Return `place` as an address in a register of its own: loads that repeat a value take no other address."""
        if not self.isa.table.address:
            return place
        self.macros["at"] = (
            "static inline const uint8_t *at(const uint8_t *p)\n{\n"
            f"    {self.isa.table.address.format(x='p')}\n    return p;\n}}"
        )
        return f"at({place})"

    def half(self, name: Value, place: str, *, declares: bool = True) -> list[str]:
        """Return statements that load half a register into a general-purpose one, which one of them `declares`.

        Gcc moves words that stay there from vector registers, if it sees that these have loaded the same.
        """
        self.types[name] = WORD
        declared = [f"uint64_t {name};"] if declares else []
        if name.part.is_word:
            self.macros["WORD"] = _LOADED_WORD
            return [*declared, f"{name} = WORD({place});"]
        return [*declared, f"memcpy(&{name}, {place}, sizeof {name});", *self.hold(name)]

    def settle(self, pointer: str) -> list[str]:
        """Return a statement that keeps a pointer from being computed before it."""
        text = self.isa.table.address
        if not text:
            return []
        self.macros["SETTLE"] = f"#define SETTLE(x) {text.format(x='x').removesuffix(';')}"
        return [f"SETTLE({pointer});"]

    def prefetch(self, place: str) -> list[str]:
        """Return a prefetch of the cache line at `place`, which may be beyond all arrays, if the set has one."""
        text = self.isa.table.prefetch
        if text is None:
            return []
        ask, clang = (f"#define PREFETCH(x) {each.format(x='x').removesuffix(';')}" for each in (text.ask, text.clang))
        self.macros["PREFETCH"] = f"#ifdef __clang__\n{clang}\n#else\n{ask}\n#endif"
        return [f"PREFETCH((uintptr_t){place});"]

    def hold(self, name: str) -> list[str]:
        """Return a statement that orders a value's instruction before instructions of later holds, if the set wants
        it."""
        table = self.isa.table
        if self.types[name].in_general:
            assert table.halves is not None
            return self._hold("HELD", name, table.halves.hold, table.address)
        return self._hold("HOLD", name, table.hold, table.pin) if table.hold else []

    def _hold(self, macro: str, name: str, hold: str, tie: str) -> list[str]:
        """Return the statement that holds a value, or for clang ties it, and its macro."""
        held, tied = (f"#define {macro}(x) {text.format(x='x').removesuffix(';')}" for text in (hold, tie))
        self.macros[macro] = f"#ifdef __clang__\n{tied}\n#else\n{held}\n#endif" if self.ties else held
        return [f"{macro}({name});"]

    def pin(self, name: str) -> list[str]:
        """Return a statement that keeps a value in its register, if the instruction set wants such."""
        text = self.pinning or self.isa.table.pin
        if not text:
            return []
        self.macros["PIN"] = f"#define PIN(x) {text.format(x='x').removesuffix(';')}"
        return [f"PIN({name});"]


def constant_arrays(constants: Sequence[Constant], prefix: str) -> list[tuple[str, list[str]]]:
    """Return the declaration of each constant's array, and its lanes."""
    kinds = [(c, VecType.parse(c.type)) for c in constants]
    return [
        (f"static const {kind:c} {prefix}_{c.name}[{len(c.lanes)}]", [_literal(x) for x in c.lanes])
        for c, kind in kinds
    ]


def _literal(x: int) -> str:
    """Return `x` in C; compilers warn of plain numbers too large for every signed type."""
    return f"UINT64_C({x})" if x >= 1 << 63 else str(x)


def load_constants(scope: Scope, isa: Isa, constants: Sequence[Constant], prefix: str) -> list[str]:
    """Return loads of constants, each in the type of its use; memory has the order of lanes."""
    kinds = [(c.name, VecType.parse(c.type)) for c in constants]
    return [scope.load(constant_load(isa, kind).name, name, f"{prefix}_{name}") for name, kind in kinds]


def names_of_row(group: int) -> Rename:
    """Return C names of one row, or of a group of rows: its accumulators carry its number."""
    return lambda value: value.of_row(group) if value.is_accumulator else value


def enclose(kernel: Kernel, group: int, lines: Sequence[str]) -> list[str]:
    """Return the statements of a row, or of rows together, which are named if there are others."""
    first, *rest = block("", lines)
    rows = " and ".join(map(str, kernel.rows_of(group)))
    return [f"{first} /* row{'s' * (kernel.together > 1)} {rows} */" if kernel.rows > 1 else first, *rest]
