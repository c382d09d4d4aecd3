"""Proves that reordering for an in-order processor changes nothing: loops, folds and flushes.

By value numbering: two values have the same number if they are computed by the same form from values of the same
numbers, and loads of the same place have the same number. The pipelined loop must leave the same numbers in the
accumulators as the steps one by one:

    one by one       a(0) = load; acc += a(0); a(1) = load; acc += a(1)
    pipelined        a(0) = load; [a(1) = load; acc += a(0)]; acc += a(1)
    both leave       acc + load(0) + load(1)

A few iterations suffice: an instruction reads only values of its own iteration and of the one before it, so nothing new
happens after _ITERATIONS. Folds and flushes must store the same numbers to the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType

from bitsynth.errors import Refuted
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Step
from bitsynth.isa.value import HALVES, Part, Role, Value
from bitsynth.kernel.in_order import folds, pipelining
from bitsynth.kernel.in_order.first_iteration import FirstIteration, begin_loop
from bitsynth.kernel.in_order.halves import HalfLoads, half_loads, words_of
from bitsynth.kernel.order import row_by_row
from bitsynth.kernel.program import ORDERS, Kernel, Loop, Pass

_ITERATIONS = 3
"""Iterations that are compared: more would show nothing new."""


def check_order(kernel: Kernel) -> None:
    """Raise Refuted unless pipelined loops, folds and flushes compute what the steps one by one do."""
    if kernel.order in ORDERS:
        return
    for loop in kernel.passes:
        pipelined = pipelining.pipeline_loop(kernel, loop)
        for count in range(1, _ITERATIONS + 1):
            for first in (None, _first_iteration(kernel, loop, pipelined)) if count > 1 else (None,):
                memo: dict[object, int] = {}
                wanted = _run_steps(kernel, loop, count * pipelined.copies, memo, sets=first is not None)
                if _run_pipelined(kernel, loop, pipelined, count, memo, first) != wanted:
                    raise Refuted(f"the order for {kernel.order} changes what {count} iterations of a loop leave")
    check_folds(kernel)


def _first_iteration(kernel: Kernel, loop: Pass, pipelined: pipelining.PipelinedLoop) -> FirstIteration | None:
    """Return the first iteration, if it differs from the others.

    Refuted if it differs in more than arithmetic, or in the places of its instructions: pointers advance behind the
    same places in all iterations.
    """
    first = begin_loop(kernel, loop, pipelined)
    if first is None:
        return None
    if len(first.body) != len(pipelined.body):
        raise Refuted(f"the first iteration has {len(first.body)} instructions, and others {len(pipelined.body)}")
    for (own, ahead), (step, same) in zip(first.body, pipelined.body, strict=True):
        arithmetic = bool(step.args) and not ahead and (own is None or (own.dst == step.dst and own.args))
        if ahead != same or not (own == step or arithmetic):
            raise Refuted(f"the first iteration has {own} in the place of {step}")
    return first


def check_folds(kernel: Kernel, doublings: int = 0) -> None:
    """Raise Refuted unless ordered folds and flushes store the same as row by row; terms double `doublings` times."""
    if kernel.order in ORDERS:
        return
    isa = load(kernel.isa)
    _check_shared_starts(isa, kernel, doublings)
    for flat in (flat for loop in kernel.passes for flat in _folds(isa, kernel, loop, doublings)):
        memo: dict[object, int] = {}
        stored = _number_stored(isa, flat.steps, memo, None)
        if _number_stored(isa, pipelining.order_fold(isa, kernel, flat), memo, half_loads(isa, kernel.order)) != stored:
            raise Refuted(f"the order for {kernel.order} changes what a fold or a flush stores")


def _folds(isa: Isa, kernel: Kernel, loop: Pass, doublings: int) -> Iterator[Loop]:
    """Yield the folds of a pass, what it carries, and its flush with terms of rows and without."""
    if folds.in_memory(isa, kernel):
        yield from (folds.fold(kernel, outer) for outer in (*loop.loops[1:], *([loop.carried] if loop.carries else [])))
    for shared in (False, True) if folds.shares_starts(isa, kernel) else (False,):
        yield from _flushes(isa, kernel, loop, doublings, shared=shared)


def _flushes(isa: Isa, kernel: Kernel, loop: Pass, doublings: int, *, shared: bool) -> Iterator[Loop]:
    """Yield the flushes of a pass that does not carry, without terms of rows and with them."""
    for row_terms in (False, True) if not loop.carries else ():
        yield folds.flush(isa, kernel, loop, row_terms=row_terms, doublings=doublings, shared=shared)


def _check_shared_starts(isa: Isa, kernel: Kernel, doublings: int) -> None:
    """Raise Refuted unless a flush that loads a shared start once stores the same as a flush that loads it for every
    row."""
    registers = kernel.tile_registers(isa.table.vector_bits)
    rows = product(range(kernel.together * registers), range(kernel.groups))
    to_one_row = {Value.of(Role.TILE, r, row=group): Value.of(Role.TILE, r % registers, row=0) for r, group in rows}
    for loop in kernel.passes if folds.shares_starts(isa, kernel) else ():
        each = (_flushes(isa, kernel, loop, doublings, shared=shared) for shared in (False, True))
        for own, shared in zip(*each, strict=True):
            memo: dict[object, int] = {}
            if _number_stored(isa, own.steps, memo, None, to_one_row) != _number_stored(isa, shared.steps, memo, None):
                raise Refuted(f"the flush of rows that share the place they start at, for {kernel.order}, is another")


def _number_stored(
    isa: Isa,
    program: Iterable[Step],
    memo: dict[object, int],
    halves: HalfLoads | None,
    places: Mapping[Value, Value] = MappingProxyType({}),
) -> dict[Value, int]:
    """Return the numbers of stored values by their places; `places` renames the places of loads.

    Refuted if an instruction loads bytes that another has stored.
    """
    program, out = list(program), dict[Value, int]()
    computed = {step.dst for step in program}
    values = _Values(
        memo, halves, (a for step in program for a in step.args if a not in computed and not a.is_constant)
    )
    for step in program:
        if isa[step.op].store:
            if step.args[0] not in values.now:
                raise Refuted(f"{step} stores a value that nothing has computed")
            out[step.dst.stored] = values.now[step.args[0]]
            continue
        whole = step.dst.whole
        if not step.args and whole in out:
            raise Refuted(f"{step} loads what has been stored")
        values.run(step, (places.get(whole, whole), step.dst.part, 0))
    return out


def _load_forms(isa: Isa, kernel: Kernel, lines: Iterable[Step]) -> dict[Value, str]:
    """Return the form that loads each input, and each half of one that fills a register."""
    halves, forms = half_loads(isa, kernel.order), {step.dst: step.op for step in lines if not step.args}
    if halves is None:
        return forms
    whole = [name for name, op in forms.items() if isa[op].operands[0].type.total_bits == isa.table.vector_bits]
    words = {name.of_part(word): halves.load for name, op in forms.items() for word in words_of(isa, op)}
    return forms | words | {name.of_part(half): halves.load for name in whole for half in HALVES}


def _words(isa: Isa, lines: Iterable[Step]) -> dict[Value, tuple[Part, ...]]:
    """Return which words of each input lie in memory as they are."""
    return {step.dst: words_of(isa, step.op) for step in lines if not step.args}


LoadPlace = tuple[Value, Part, int]
"""The place that a load reads: an input, its part, and the number of the step."""


class _Values:
    """Runs instructions on value numbers, which `memo` keeps by operation and operands.

    With the forms of `halves`, joining both halves of an input counts as loading the whole, and moving a half of a
    loaded register to a general-purpose register as loading that half, if it is one of the `words` of the input.
    """

    def __init__(
        self,
        memo: dict[object, int],
        halves: HalfLoads | None,
        start: Iterable[Value] = (),
        words: Mapping[Value, Sequence[Part]] = MappingProxyType({}),
    ) -> None:
        self.memo, self.halves, self.words = memo, halves, words
        self.loads = dict[int, LoadPlace]()
        self.now = {name: self.number(name) for name in start}

    def number(self, what: object) -> int:
        """Return the number of a value."""
        return self.memo.setdefault(what, len(self.memo))

    def run(self, step: Step, at: LoadPlace) -> None:
        """Run an instruction; a load gives the value `at` its place. Refuted if an operand has no value."""
        absent = [a for a in step.args if a not in self.now and not a.is_constant]
        if absent:
            raise Refuted(f"{step} reads {absent[0]} before it is computed")
        args: tuple[int | Value, ...] = tuple(self.now.get(a, a) for a in step.args)
        place = (self._join_loads(step, args) or self._word_load(step, args)) if args else at
        value = self.number(place or (step.op, step.imm, args))
        self.now[step.dst] = value
        if place:
            self.loads[value] = place

    def _join_loads(self, step: Step, args: Iterable[int | Value]) -> LoadPlace | None:
        """Return the place of an input whose halves the instruction joins."""
        if self.halves is None or step.op != self.halves.join:
            return None
        low, high = (self.loads.get(a) if isinstance(a, int) else None for a in args)
        if not low or not high or (low[1], high[1]) != HALVES or (low[0], low[2]) != (high[0], high[2]):
            return None
        return low[0], Part.WHOLE, low[2]

    def _word_load(self, step: Step, args: Sequence[int | Value]) -> LoadPlace | None:
        """Return the place of the word that the instruction moves out of a loaded register."""
        if self.halves is None or step.op not in self.halves.takes:
            return None
        place = self.loads.get(args[0]) if isinstance(args[0], int) else None
        if place is None:
            return None
        name, part, number = place
        word = self.halves.takes[step.op]
        return (name, word, number) if part is Part.WHOLE and word in self.words.get(name, ()) else None

    def end(self, flat: Loop, carried: Iterable[Value]) -> None:
        """End an iteration: accumulators take their next values; other values that are not `carried` are gone."""
        carried = list(carried)
        if absent := {*carried, *(acc.next for acc in flat.accs)} - self.now.keys():
            raise Refuted(f"an iteration ends, and nothing has computed {min(absent)}")
        self.now = {acc.name: self.now[acc.next] for acc in flat.accs} | {x: self.now[x] for x in carried}


def _run_steps(kernel: Kernel, loop: Pass, steps: int, memo: dict[object, int], *, sets: bool) -> list[int]:
    """Return the accumulators after steps one by one, which the first run `sets` or goes on from."""
    isa, flat = load(kernel.isa), row_by_row(kernel, loop, loop.step)
    start = () if sets else (acc.name for acc in flat.accs)
    values = _Values(memo, half_loads(isa, kernel.order), start, _words(isa, flat.steps))
    for number in range(steps):
        run = row_by_row(kernel, loop, loop.step.first_run) if sets and number == 0 else flat
        for step in run.steps:
            values.run(step, (step.dst, Part.WHOLE, number))
        values.end(run, ())
    return [values.now[acc.name] for acc in flat.accs]


def _run_pipelined(
    kernel: Kernel,
    loop: Pass,
    pipelined: pipelining.PipelinedLoop,
    count: int,
    memo: dict[object, int],
    first: FirstIteration | None,
) -> list[int]:
    """Return the accumulators after `count` pipelined iterations; `first`, if there is one, sets them."""
    isa, plain = load(kernel.isa), row_by_row(kernel, loop, loop.step).steps
    places = {
        s.dst.of_part(part).of_copy(copy): (s.dst, part, copy)
        for s in plain
        for part in Part
        for copy in range(pipelined.copies)
    }

    forms = _load_forms(isa, kernel, plain)

    def at(step: Step, iteration: int) -> LoadPlace:
        if step.dst not in places:
            raise Refuted(f"{step} is no instruction of a step")
        value, part, copy = places[step.dst]
        if not step.args and step.op != forms.get(value.of_part(part)):
            raise Refuted(f"{step} loads in another form than {forms.get(value.of_part(part))}")
        return value, part, iteration * pipelined.copies + copy

    start = () if first else (acc.name for acc in pipelined.flat.accs)
    values = _Values(memo, half_loads(isa, kernel.order), start, _words(isa, plain))
    for step in pipelined.prologue:
        values.run(step, at(step, 0))
    for iteration in range(count - 1):
        values.now = {x: v for x, v in values.now.items() if x in pipelined.carried or x.is_accumulator}
        here = first if first and iteration == 0 else pipelined
        for own, ahead in here.body:
            if own:
                values.run(own, at(own, iteration + ahead))
        values.end(here.flat, pipelined.carried)
    for step in pipelined.tail:
        values.run(step, at(step, count - 1))
    values.end(pipelined.flat, ())
    return [values.now[acc.name] for acc in pipelined.flat.accs]
