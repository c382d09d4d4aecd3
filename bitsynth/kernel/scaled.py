"""Scales a kernel by a power of two: in some encodings values are multiples of the values of the kernel's codes.

Given (a flush)                 Result for 2 doublings
    t = shl acc 16                  t = shl acc 18
    tile = add tile t               tile = add tile t
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice, pairwise

from msgspec.structs import replace

from bitsynth.isa.load import Isa
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.program import Kernel, Pass

_TILE_BITS = 32
"""Bits of a lane of the tile."""

_SHIFTS = {"sll", "shl"}
"""Instructions that shift lanes left by their immediate."""

_PRODUCTS = {"mla", "mls", "umlal", "umlal2", "umlsl", "umlsl2", "dpwssd"}
"""Instructions that add products to their first operand, or subtract them; their last operand may be a constant."""


def scale_flushes(isa: Isa, kernel: Kernel, doublings: int) -> Kernel:
    """Return the kernel whose flushes add 2^doublings times as much as flushes of `kernel`, to the same row terms.

    That holds modulo 2^32 for all accumulators. The summands of flushes are doubled where that costs least: in the
    immediate of a shift, in a constant, or else by additions.
    """
    if not doublings:
        return kernel
    scaling = _Scaling(isa, kernel, doublings)
    changed = kernel.with_passes(lambda p: p if p.carries else scaling.scale_flush(p))
    read = {a for p in changed.every_pass for program in p.programs for s in program for a in s.args}
    constants = tuple(c for c in (*kernel.constants, *scaling.more.values()) if c.name in read)
    return replace(changed, constants=constants)


@dataclass
class _Scaling:
    """Rewrites flushes; `more` has the new constants, by the names of the constants that they replace."""

    isa: Isa
    kernel: Kernel
    doublings: int
    more: dict[Value, Constant] = field(default_factory=dict[Value, Constant])

    def scale_flush(self, loop: Pass) -> Pass:
        """Return the pass with its flush scaled: every instruction that adds to the tile adds a multiple."""
        tile = {Value.of(Role.TILE, r) for r in range(len(loop.tile))}
        lines, times = list[Step](), self.doublings
        fresh = (Value.of(Role.TEMPORARY, n) for n in count(1 + max(step.dst.number or 0 for step in loop.flush)))
        shifts = filter(self._shifts, loop.flush)
        further = {step.dst: step.replace(dst=next(fresh), imm=step.imm + times) for step in shifts}
        for step in loop.flush:
            (own,) = tile.intersection(step.args) or (None,)
            if own is None:
                lines += [step, *([further[step.dst]] if step.dst in further else [])]
                continue
            tile.add(step.dst)
            lines += self._scale_addition(step, own, further, fresh)
        return replace(loop, flush=tuple(_alive(lines, loop.tile)))

    def _scale_addition(
        self, step: Step, own: Value, further: Mapping[Value, Step], fresh: Iterator[Value]
    ) -> Iterator[Step]:
        """Yield the instructions in place of one that adds to the tile in `own`, or subtracts from it."""
        name = next(a for a in reversed(step.args) if a != own)
        if name in further and self._lane_bits(step, name) == _TILE_BITS:
            yield _with(step, name, further[name].dst)
        elif step.op.partition(".")[0] in _PRODUCTS and (constant := self._multiple(step, name)):
            yield _with(step, name, constant)
        else:
            names = [own, *islice(fresh, (1 << self.doublings) - 1), step.dst]
            yield from (_with(step, own, x).replace(dst=y) for x, y in pairwise(names))

    def _shifts(self, step: Step) -> bool:
        """Return whether an instruction shifts lanes of the tile's width left, and could shift them further."""
        bits = self.isa[step.op].out.bits
        return step.op.partition(".")[0] in _SHIFTS and bits == _TILE_BITS and step.imm + self.doublings < bits

    def _lane_bits(self, step: Step, name: Value) -> int:
        """Return the lane width of an operand of an instruction."""
        return self.isa[step.op].operands[step.args.index(name)].type.bits

    def _multiple(self, step: Step, name: Value) -> Value | None:
        """Return the multiple of an instruction's last operand, if that is a constant with room for it."""
        kind = self.isa[step.op].operands[-1].type
        constant = next((c for c in self.kernel.constants if c.name == name), None)
        if constant is None:
            return None
        multiple = tuple(x << self.doublings for x in constant.lanes)
        if kind.bits == _TILE_BITS:
            multiple = tuple(x % (1 << _TILE_BITS) for x in multiple)
        elif max(multiple) >> kind.bits - (kind.sign == "s"):
            return None
        number = len(self.kernel.constants) + len(self.more)
        return self.more.setdefault(name, Constant(Value.of(Role.CONSTANT, number), constant.type, multiple)).name


def _with(step: Step, name: Value, other: Value) -> Step:
    """Return the instruction with `other` in the place of the operand `name`."""
    return step.replace(args=tuple(other if a == name else a for a in step.args))


def _alive(lines: Sequence[Step], out: Iterable[Value]) -> Iterator[Step]:
    """Return the instructions that `out` depends on."""
    read, alive = set(out), list[Step]()
    for step in reversed(lines):
        if step.dst in read:
            alive.append(step)
            read |= set(step.args)
    return reversed(alive)
