"""SMT-LIB text: the few operators the sketches need, and a system of declared unknowns.

Text is written instead of Z3 terms because building terms from Python takes longer than
solving them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

TRUE, FALSE = "true", "false"


def implies(a: str, b: str) -> str:
    """Return a => b."""
    return f"(=> {a} {b})"


def equal(a: str, b: str) -> str:
    """Return a = b."""
    return f"(= {a} {b})"


def ite(cond: str, a: str, b: str) -> str:
    """Return `a` if `cond` holds, else `b`."""
    return a if a == b else f"(ite {cond} {a} {b})"


def both(*xs: str) -> str:
    """Return the condition that all of `xs` hold."""
    return f"(and {' '.join(xs)})" if len(xs) > 1 else xs[0]


def either(*xs: str) -> str:
    """Return the condition that at least one of `xs` holds."""
    return f"(or {' '.join(xs)})" if len(xs) > 1 else xs[0]


def no(x: str) -> str:
    """Return the condition that `x` does not hold."""
    return f"(not {x})"


def exactly_one(xs: Sequence[str]) -> str:
    """Return the condition that exactly one of `xs` holds."""
    return f"((_ pbeq 1{' 1' * len(xs)}) {' '.join(xs)})"


def at_most(limit: int, priced: Sequence[tuple[str, int]]) -> str:
    """Return the prices of the terms that hold add up to `limit` at most."""
    prices = " ".join(str(price) for _, price in priced)
    return f"((_ pble {limit} {prices}) {' '.join(x for x, _ in priced)})"


@dataclass
class System:
    """Declarations and assertions of an SMT-LIB system."""

    lines: list[str] = field(default_factory=list)

    def boolean(self, name: str) -> str:
        """Return a boolean unknown."""
        self.lines.append(f"(declare-const {name} Bool)")
        return name

    def vector(self, name: str, width: int) -> str:
        """Return a bit-vector unknown."""
        self.lines.append(f"(declare-const {name} (_ BitVec {width}))")
        return name

    def add(self, claims: Iterable[str]) -> None:
        """Assert each claim."""
        self.lines.extend(f"(assert {c})" for c in claims)

    @property
    def text(self) -> str:
        """The whole system as SMT-LIB text."""
        return "\n".join(self.lines)


def constant(value: int, width: int) -> str:
    """Return a bit-vector numeral, modulo 2**width."""
    return f"(_ bv{value % (1 << width)} {width})"
