"""The order of instructions for an in-order processor: a few turns of its loop leave what the steps one by one do.

And folds and flushes store what they do row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType

from bitsynth.errors import Refuted
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Step
from bitsynth.kernel.in_order import folds, pipelining
from bitsynth.kernel.in_order.first_iteration import FirstIteration, begin_loop
from bitsynth.kernel.in_order.halves import HALVES, PARTS, HalfLoads, half_loads, half_of, words_of
from bitsynth.kernel.order import of_row, row_by_row
from bitsynth.kernel.program import ORDERS, Kernel, Loop, Pass

_TURNS = 3
"""Turns of a loop behind which nothing new comes: a line reads what its turn or the one before made."""


def check_order(kernel: Kernel) -> None:
    """Refuted unless the steps as they are ordered make the same of every accumulator, turn for turn."""
    if kernel.order in ORDERS:
        return
    for loop in kernel.passes:
        found = pipelining.pipeline_loop(kernel, loop)
        for turns in range(1, _TURNS + 1):
            for first in (None, _beginning(kernel, loop, found)) if turns > 1 else (None,):
                known: dict[object, int] = {}
                wanted = _one_by_one(kernel, loop, turns * found.copies, known, sets=first is not None)
                if _as_ordered(kernel, loop, found, turns, known, first) != wanted:
                    raise Refuted(f"the order for {kernel.order} changes what {turns} turns of a loop leave")
    check_folds(kernel)


def _beginning(kernel: Kernel, loop: Pass, found: pipelining.PipelinedLoop) -> FirstIteration | None:
    """The first turn, if it is another; Refuted if it has other lines than sums, or has them in other places.

    Pointers go on behind the same numbers of lines in all turns.
    """
    first = begin_loop(kernel, loop, found)
    if first is None:
        return None
    if len(first.body) != len(found.body):
        raise Refuted(f"the first turn has {len(first.body)} lines, and others {len(found.body)}")
    for (line, later), (step, same) in zip(first.body, found.body, strict=True):
        sums = bool(step.args) and not later and (line is None or (line.dst == step.dst and line.args))
        if later != same or not (line == step or sums):
            raise Refuted(f"the first turn has {line} in the place of {step}")
    return first


def check_folds(kernel: Kernel, doublings: int = 0) -> None:
    """Refuted unless folds and flushes as they are ordered store what they do row by row, terms doubled so often."""
    if kernel.order in ORDERS:
        return
    isa = load(kernel.isa)
    _check_shared_starts(isa, kernel, doublings)
    for flat in (flat for loop in kernel.passes for flat in _folds(isa, kernel, loop, doublings)):
        known: dict[object, int] = {}
        stored = _stored(isa, flat.steps, known, None)
        if _stored(isa, pipelining.order_fold(isa, kernel, flat), known, half_loads(isa, kernel.order)) != stored:
            raise Refuted(f"the order for {kernel.order} changes what a fold or a flush stores")


def _folds(isa: Isa, kernel: Kernel, loop: Pass, doublings: int) -> Iterator[Loop]:
    """The folds of a pass, what it carries, and its flush with terms of rows and without."""
    if folds.in_memory(isa, kernel):
        yield from (folds.fold(kernel, outer) for outer in (*loop.loops[1:], *([loop.carried] if loop.carries else [])))
    for shared in (False, True) if folds.shares_starts(isa, kernel) else (False,):
        yield from _flushes(isa, kernel, loop, doublings, shared=shared)


def _flushes(isa: Isa, kernel: Kernel, loop: Pass, doublings: int, *, shared: bool) -> Iterator[Loop]:
    """The flushes of a pass that does not carry, without terms of rows and with them."""
    for row_terms in (False, True) if not loop.carries else ():
        yield folds.flush(isa, kernel, loop, row_terms=row_terms, doublings=doublings, shared=shared)


def _check_shared_starts(isa: Isa, kernel: Kernel, doublings: int) -> None:
    """Refuted unless flushes of rows that start at one place store what those do that load it for every row."""
    registers = kernel.tile_registers(isa.table.vector_bits)
    rows = product(range(kernel.together * registers), range(kernel.groups))
    one = {of_row(f"c{r}", group): of_row(f"c{r % registers}", 0) for r, group in rows}
    for loop in kernel.passes if folds.shares_starts(isa, kernel) else ():
        each = (_flushes(isa, kernel, loop, doublings, shared=shared) for shared in (False, True))
        for own, shared in zip(*each, strict=True):
            known: dict[object, int] = {}
            if _stored(isa, own.steps, known, None, one) != _stored(isa, shared.steps, known, None):
                raise Refuted(f"the flush of rows that share the place they start at, for {kernel.order}, is another")


def _stored(
    isa: Isa,
    lines: Iterable[Step],
    known: dict[object, int],
    halves: HalfLoads | None,
    places: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, int]:
    """What lines store, by its place; loads are of their own `places`. Refuted if one loads what another has stored."""
    lines, out = list(lines), dict[str, int]()
    made = {step.dst for step in lines}
    values = _Values(known, halves, (a for step in lines for a in step.args if a not in made and a[0] != "k"))
    for step in lines:
        if isa[step.op].store:
            if step.args[0] not in values.now:
                raise Refuted(f"{step} stores what nothing has made")
            out[step.dst.removeprefix(folds.STORED)] = values.now[step.args[0]]
            continue
        whole, half = half_of(step.dst)
        if not step.args and whole in out:
            raise Refuted(f"{step} loads what has been stored")
        values.run(step, (places.get(whole, whole), half, 0))
    return out


def _load_forms(isa: Isa, kernel: Kernel, lines: Iterable[Step]) -> dict[str, str]:
    """What loads each input, and each half of one that fills a register."""
    halves, forms = half_loads(isa, kernel.order), {step.dst: step.op for step in lines if not step.args}
    if halves is None:
        return forms
    whole = [name for name, op in forms.items() if isa[op].operands[0].type.total_bits == isa.table.vector_bits]
    words = {name + word: halves.load for name, op in forms.items() for word in words_of(isa, op)}
    return forms | words | {name + half: halves.load for name in whole for half in HALVES}


def _words(isa: Isa, lines: Iterable[Step]) -> dict[str, tuple[str, ...]]:
    """The words of inputs that lie in memory as they are, by the names of inputs."""
    return {step.dst: words_of(isa, step.op) for step in lines if not step.args}


LoadPlace = tuple[str, str, int]
"""What a load reads: an input, "" or one of its PARTS, and the number of the step."""


class _Values:
    """Values by their names; what is made of the same by the same has one number in `known`.

    By the forms of `halves`, one that makes a register of its halves is the load of the whole, and one that takes half
    of what was loaded into a general-purpose register is the load of that, if it is one of the `words` of the input.
    """

    def __init__(
        self,
        known: dict[object, int],
        halves: HalfLoads | None,
        start: Iterable[str] = (),
        words: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.known, self.halves, self.words = known, halves, words
        self.loads = dict[int, LoadPlace]()
        self.now = {name: self.of(name) for name in start}

    def of(self, what: object) -> int:
        return self.known.setdefault(what, len(self.known))

    def run(self, step: Step, at: LoadPlace) -> None:
        """Run a line; a load makes what lies `at` its place. Refuted if an operand is not there."""
        absent = [a for a in step.args if a not in self.now and a[0] != "k"]
        if absent:
            raise Refuted(f"{step} reads {absent[0]} before it is made")
        args = tuple(self.now.get(a, a) for a in step.args)
        place = (self._joined(step, args) or self._taken(step, args)) if args else at
        value = self.of(place or (step.op, step.imm, args))
        self.now[step.dst] = value
        if place:
            self.loads[value] = place

    def _joined(self, step: Step, args: Iterable[int | str]) -> LoadPlace | None:
        """What a step has loaded whose operands are the halves of one input."""
        if self.halves is None or step.op != self.halves.join:
            return None
        low, high = (self.loads.get(a) if isinstance(a, int) else None for a in args)
        if not low or not high or (low[1], high[1]) != HALVES or (low[0], low[2]) != (high[0], high[2]):
            return None
        return (low[0], "", low[2])

    def _taken(self, step: Step, args: Sequence[int | str]) -> LoadPlace | None:
        """What a step has loaded that takes half of one input."""
        if self.halves is None or step.op not in self.halves.takes:
            return None
        of = self.loads.get(args[0]) if isinstance(args[0], int) else None
        word = self.halves.takes[step.op]
        return (of[0], word, of[2]) if of and not of[1] and word in self.words.get(of[0], ()) else None

    def end(self, flat: Loop, carried: Iterable[str]) -> None:
        """End a turn: accumulators become what they are next, and what is not `carried` is gone."""
        carried = list(carried)
        if absent := {*carried, *(acc.next for acc in flat.accs)} - self.now.keys():
            raise Refuted(f"a turn ends, and nothing has made {min(absent)}")
        self.now = {acc.name: self.now[acc.next] for acc in flat.accs} | {x: self.now[x] for x in carried}


def _one_by_one(kernel: Kernel, loop: Pass, steps: int, known: dict[object, int], *, sets: bool) -> list[int]:
    """What steps leave in accumulators, which the first run `sets` or goes on from."""
    isa, flat = load(kernel.isa), row_by_row(kernel, loop, loop.step)
    start = () if sets else (acc.name for acc in flat.accs)
    values = _Values(known, half_loads(isa, kernel.order), start, _words(isa, flat.steps))
    for number in range(steps):
        run = row_by_row(kernel, loop, loop.step.first_run) if sets and number == 0 else flat
        for step in run.steps:
            values.run(step, (step.dst, "", number))
        values.end(run, ())
    return [values.now[acc.name] for acc in flat.accs]


def _as_ordered(
    kernel: Kernel,
    loop: Pass,
    found: pipelining.PipelinedLoop,
    turns: int,
    known: dict[object, int],
    first: FirstIteration | None,
) -> list[int]:
    """What turns in their order leave in accumulators, which the `first`, if there is one, sets."""
    isa, plain = load(kernel.isa), row_by_row(kernel, loop, loop.step).steps
    places = {
        pipelining.copy_of(s.dst + half, copy): (s.dst, half, copy)
        for s in plain
        for half in ("", *PARTS)
        for copy in range(found.copies)
    }

    forms = _load_forms(isa, kernel, plain)

    def at(step: Step, turn: int) -> LoadPlace:
        if step.dst not in places:
            raise Refuted(f"{step} is no line of a step")
        name, half, copy = places[step.dst]
        if not step.args and step.op != forms.get(name + half):
            raise Refuted(f"{step} loads in another form than {forms.get(name + half)}")
        return name, half, turn * found.copies + copy

    start = () if first else (acc.name for acc in found.flat.accs)
    values = _Values(known, half_loads(isa, kernel.order), start, _words(isa, plain))
    for step in found.prologue:
        values.run(step, at(step, 0))
    for turn in range(turns - 1):
        values.now = {x: v for x, v in values.now.items() if x in found.carried or x.startswith("acc")}
        here = first if first and turn == 0 else found
        for line, later in here.body:
            if line:
                values.run(line, at(line, turn + later))
        values.end(here.flat, found.carried)
    for step in found.tail:
        values.run(step, at(step, turns - 1))
    values.end(found.flat, ())
    return [values.now[acc.name] for acc in found.flat.accs]
