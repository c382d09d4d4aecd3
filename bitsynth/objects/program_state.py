"""The proved program as a machine whose numbers are not known: a position in its loops, and its accumulators.

For sizes that are not known a position is: the tile, the step within it, the segment and the step within that, and for
each loop where its run began, where it ends and how many runs of the loop inside it had. A transition is a step over K,
the addition of a loop's accumulators to the next loop's, or a flush; linear facts decide which one follows.

Passes that share accumulators run over the same block of steps, one after the other: the flush of one of them makes the
outermost accumulators from which the next starts, at the block's first step again. So a position has the segment of
that step too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

from bitsynth.kernel.program import Pass, period
from bitsynth.objects.affine import AffineNumber, number
from bitsynth.objects.facts import LinearFacts, is_at_most, is_equal
from bitsynth.objects.reference import ProgramRun, RegisterContents, StepPlace, TileContents
from bitsynth.solver.z3 import z3

PARAMETERS = ("tiles", "segments", "steps", "all_steps", "every_step", "ldc", "&w", "&g", "&h", "&c", "&a")
"""The numbers of a call; `every_step` has the steps of all tiles, and `&w` is the address of `w`."""
BUFFERS_END = 1 << 63
"""Buffers end below this address, as in every process."""
CASES = ("no tiles", "no steps", "steps")
"""A call has no tile, no step in its tiles, or both tiles and steps."""
_BLOCK = ("block_segment", "before_block_segment")
"""The segment of the first step of a block, and the steps before that segment; of passes that share accumulators."""
PositionNumbers = dict[str, AffineNumber]


class ProgramMode(NamedTuple):
    """A state without its numbers and contents.

    Attributes:
        case: The case of the call.
        pass_number: The pass.
        flushed: Whether a flush has written the tile.
        began: For each loop whether its run begins, so that it has no accumulators yet.
        at_segment_end: Whether the pass begins a block of steps again whose first step is the first of a segment. Then
            registers may hold addresses of any segment's rows; elsewhere addresses of the step's segment.
    """

    case: str
    pass_number: int
    flushed: bool
    began: tuple[bool, ...]
    at_segment_end: bool = False


@dataclass(frozen=True)
class ProgramState:
    """A state between two transitions.

    Attributes:
        pending: How many loops have ended, innermost first, at the last step; the next transition is of that loop.
        flushed: Whether a flush has written the tile.
        accs: By group of rows and loop; None for a run that begins with zeros.
        tile: The tile's registers after its last flush.
        written: The tile that a transition flushed, and its registers, since the state that began with none.
    """

    case: str
    pass_number: int
    flushed: bool
    pending: int
    position: PositionNumbers
    accs: tuple[tuple[RegisterContents | None, ...], ...] = ()
    tile: TileContents = field(default_factory=dict)
    written: tuple[AffineNumber, TileContents] | None = None

    @property
    def mode(self) -> ProgramMode:
        """The state without its numbers and contents."""
        began = tuple(acc is None for acc in self.accs[0]) if self.accs else ()
        return ProgramMode(self.case, self.pass_number, self.flushed, began)


class ProgramMachine:
    """The transitions of a kernel's program.

    Attributes:
        passes: All passes, in the order in which they run.
        chains: By pass: the numbers of the passes that it shares accumulators with, itself included.
    """

    def __init__(self, run: ProgramRun) -> None:
        self.run, self.kernel = run, run.kernel
        self.passes = [each for chain in self.kernel.chains for each in chain]
        self.chains: list[range] = []
        for chain in self.kernel.chains:
            self.chains += [range(len(self.chains), len(self.chains) + len(chain))] * len(chain)

    def names(self, number: int) -> list[str]:
        """Return the names of the numbers of a position; a number precedes all sums that have it as an addend."""
        levels = range(len(self.passes[number].loops))
        out = ["tile", "before_tile", *(_BLOCK if len(self.chains[number]) > 1 else ()), "segment", "before_segment"]
        out += [f"runs {n}" for n in reversed(levels) if n]
        return [*out, *(f"start {n}" for n in reversed(levels)), "here", "step", *(f"end {n}" for n in levels)]

    def run_steps(self, number: int) -> list[int]:
        """Return the most steps of a run of each loop of a pass, innermost first; the last number is the steps of a
        block."""
        out = list(accumulate((loop.trip_count for loop in self.passes[number].loops), mul))
        return [*out[:-1], period(self.passes[k] for k in self.chains[number])]

    def initial(self, case: str, facts: LinearFacts) -> ProgramState:
        """Return the state at the start of a call."""
        zeros = {name: number(0) for name in self.names(0)}
        state = ProgramState(case, 0, False, 0, zeros)
        return state if case != "steps" else self._start_pass(state, 0, facts)

    def make_unknown(self, mode: ProgramMode, numbers: PositionNumbers, accs: Any) -> ProgramState:
        """Return a state of a mode with these numbers and accumulators."""
        tile = self._tile_in_memory() if mode.flushed else self._start(numbers) if mode.case == "steps" else {}
        return ProgramState(mode.case, mode.pass_number, mode.flushed, 0, numbers, accs, tile)

    def _start(self, numbers: PositionNumbers) -> TileContents:
        return self.run.start(numbers["tile"] * self.kernel.columns)

    def _tile_in_memory(self) -> TileContents:
        lanes, registers = self.run.isa.tile.lanes, self.kernel.tile_registers(self.run.isa.table.vector_bits)
        places = [(row, k * lanes) for row in range(self.kernel.rows) for k in range(registers)]
        return {(row, col): self.run.values.memory(("c", row), 4 * col, 4 * lanes) for row, col in places}

    def assume_sizes(self, case: str, facts: LinearFacts) -> None:
        """Add the facts of the C interface on the sizes of a call, and that its buffers fit into memory."""
        kernel = self.kernel
        of = {name: facts.term(AffineNumber.of_unknown(name)) for name in PARAMETERS}
        tiles, segments, steps, all_steps, every, ldc = (of[name] for name in PARAMETERS[:6])
        facts.assume(
            *(x >= 0 for x in of.values()), *(x < 2 * BUFFERS_END for x in (tiles, segments, steps, all_steps, ldc))
        )
        if case == "no tiles":
            facts.assume(tiles == 0, every == 0)
            return
        facts.assume(tiles >= 1, ldc >= tiles * kernel.columns, every >= all_steps)
        sizes = {
            "&w": every * kernel.columns * kernel.column_bytes,
            "&g": 4 * kernel.columns * tiles,
            "&h": z3.IntVal(4 * kernel.rows * self.run.row_terms),
            "&c": 4 * ((kernel.rows - 1) * ldc + kernel.columns * tiles),
            "&a": 8 * kernel.rows * segments,
        }
        facts.assume(*(of[name] + size <= BUFFERS_END for name, size in sizes.items()))
        if case == "no steps":
            facts.assume(all_steps == 0, every == 0)
            return
        facts.assume(segments >= 1, steps >= 1, all_steps >= segments, all_steps >= steps)
        facts.assume((segments == 1) == (all_steps == steps), (steps == 1) == (all_steps == segments))
        facts.assume(z3.Implies(segments >= 2, all_steps >= 2 * steps))
        facts.assume(steps * kernel.row_bytes <= BUFFERS_END)

    def products(self, case: str) -> dict[tuple[AffineNumber, AffineNumber], AffineNumber | int]:
        """Return the product of segments and steps, by either order of the two."""
        a, b = AffineNumber.of_unknown("segments"), AffineNumber.of_unknown("steps")
        product = 0 if case == "no steps" else AffineNumber.of_unknown("all_steps")
        return {(a, b): product, (b, a): product}

    def assume_position(self, state: ProgramState, facts: LinearFacts) -> None:
        """Add the facts that hold at every position of the program, by the definition of its loops."""
        of = {name: facts.term(x) for name, x in state.position.items()}
        params = {name: facts.term(AffineNumber.of_unknown(name)) for name in PARAMETERS}
        tile, steps, all_steps = of["tile"], params["steps"], params["all_steps"]
        facts.assume(tile >= 0, tile <= params["tiles"])
        if state.case != "steps":
            return
        step, here, segment, before = of["step"], of["here"], of["segment"], of["before_segment"]
        facts.assume(of["before_tile"] >= 0, (tile == 0) == (of["before_tile"] == 0))
        facts.assume(z3.Implies(tile < params["tiles"], of["before_tile"] + all_steps <= params["every_step"]))
        facts.assume(step >= 0, step <= all_steps, here >= 0, here <= steps, step == before + here)
        facts.assume(segment >= 0, segment < params["segments"], before >= 0, before + steps <= all_steps)
        facts.assume((segment == 0) == (before == 0), before >= segment)
        facts.assume((segment + 1 < params["segments"]) == (before + steps < all_steps))
        loops, sizes = self.passes[state.pass_number].loops, self.run_steps(state.pass_number)
        chain, top = self.chains[state.pass_number], len(loops) - 1
        outer_end = all_steps
        for level in reversed(range(len(loops))):
            start, end, size = of[f"start {level}"], of[f"end {level}"], sizes[level]
            facts.assume(0 <= start, start <= step, step <= end, start < end, end <= outer_end, end <= start + size)
            facts.assume(z3.Or(end == outer_end, end == start + size))
            outer_end, began = end, state.accs[0][level] is None
            starts_carried = level == top and state.pass_number != chain[0]  # It has accumulators in any case.
            if not level:
                facts.assume(start <= step if starts_carried else start == step if began else start < step)
            else:
                runs = of[f"runs {level}"]
                facts.assume(runs >= 0, runs <= loops[level].trip_count)
                facts.assume(of[f"start {level - 1}"] == start + sizes[level - 1] * runs)
                if not starts_carried:
                    facts.assume((runs == 0) == began)
        first = of[f"start {top}"]
        if chain[0] == 0:
            facts.assume(first > 0 if state.flushed else first == 0)
        if len(chain) > 1:
            number, steps_before = (of[name] for name in _BLOCK)
            facts.assume(0 <= number, number <= segment, steps_before >= number, steps_before <= first)
            facts.assume(first <= steps_before + steps, (number == segment) == (steps_before == before))
            facts.assume(z3.Implies(number < segment, steps_before + steps <= before))
            facts.assume((number == 0) == (steps_before == 0))
            facts.assume((number + 1 < params["segments"]) == (steps_before + steps < all_steps))

    def find_decided_ends(self, state: ProgramState, facts: LinearFacts) -> list[AffineNumber]:
        """Return sums that are 0: the ends of runs of loops, minus equal numbers by the facts."""
        if state.case != "steps":
            return []
        ends: list[tuple[AffineNumber, AffineNumber]] = []
        outer = AffineNumber.of_unknown("all_steps")
        for level, size in enumerate(self.run_steps(state.pass_number)):
            end, start = state.position[f"end {level}"], state.position[f"start {level}"]
            ends += [(end, state.position.get(f"end {level + 1}", outer)), (end, start + size)]
        implied = facts.find_implied(is_equal(*pair) for pair in ends)
        return [end - x for end, x in ends if is_equal(end, x) in implied]

    def settle(self, state: ProgramState, facts: LinearFacts) -> ProgramState:
        """Return the state after loops that go on have begun their next run, where the facts decide it."""
        if state.case != "steps" or not state.pending:
            return state
        loops = self.passes[state.pass_number].loops
        step, all_steps = state.position["step"], AffineNumber.of_unknown("all_steps")
        end = state.position[f"end {state.pending}"] if state.pending < len(loops) else all_steps
        if facts.at_most(step + 1, end):
            if state.pending == len(loops):
                state = self._move(state, self.chains[state.pass_number][0])
                return self._open(state, len(state.accs[0]) - 1, facts)
            return self._open(state, state.pending - 1, facts)
        if state.pending == len(loops) and facts.equal(step, all_steps):
            return self._after_pass(state, facts)
        return state

    def _open(self, state: ProgramState, level: int, facts: LinearFacts) -> ProgramState:
        """Return the state with runs of loops up to `level` that begin at this step."""
        position, sizes = dict(state.position), self.run_steps(state.pass_number)
        for k in reversed(range(level + 1)):
            outer = position[f"end {k + 1}"] if k + 1 < len(sizes) else AffineNumber.of_unknown("all_steps")
            position[f"start {k}"] = position["step"]
            position[f"end {k}"] = number(facts.smaller(position["step"] + sizes[k], outer))
            if k:
                position[f"runs {k}"] = number(0)
        if level + 1 == len(sizes) and _BLOCK[0] in position:
            position |= dict(zip(_BLOCK, (position["segment"], position["before_segment"]), strict=True))
        return replace(state, position=position, pending=0)

    def _move(self, state: ProgramState, pass_number: int) -> ProgramState:
        """Return the state at the same step in another pass, all of whose loops begin."""
        position = {name: state.position.get(name, number(0)) for name in self.names(pass_number)}
        accs = tuple((None,) * len(self.passes[pass_number].loops) for _ in range(self.kernel.groups))
        return replace(state, pass_number=pass_number, position=position, accs=accs)

    def _start_pass(self, state: ProgramState, pass_number: int, facts: LinearFacts) -> ProgramState:
        """Return the state at the first step of a tile in a pass."""
        before = {name: state.position[name] for name in ("tile", "before_tile")}
        zeros = {name: number(0) for name in self.names(pass_number)}
        state = self._move(replace(state, position={**zeros, **before}), pass_number)
        if not state.flushed:
            state = replace(state, tile=self._start(state.position))
        return self._open(state, len(state.accs[0]) - 1, facts)

    def _next_of_chain(self, state: ProgramState, facts: LinearFacts) -> ProgramState:
        """Return the state at the first step of a block in the pass that starts from this one's accumulators."""
        following, old = state.pass_number + 1, state.position
        top, new_top = len(state.accs[0]) - 1, len(self.passes[following].loops) - 1
        accs = []
        for group, levels in enumerate(state.accs):
            outermost, after = levels[-1], self.kernel.of_group(self.passes[following], group)
            assert outermost is not None
            accs.append((*[None] * new_top, self.run.carry(self._pass(state, group), after, outermost)))
        segment, before = (old[name] for name in _BLOCK)
        start = old[f"start {top}"]
        state = self._move(state, following)
        position = {**state.position, "segment": segment, "before_segment": before, "step": start}
        position |= {"here": start - before, f"start {new_top}": start, f"end {new_top}": old[f"end {top}"]}
        if new_top:
            position[f"runs {new_top}"] = number(0)
        return self._open(replace(state, position=position, accs=tuple(accs)), new_top - 1, facts)

    def _after_pass(self, state: ProgramState, facts: LinearFacts) -> ProgramState:
        if state.pass_number + 1 < len(self.passes):
            return self._start_pass(state, state.pass_number + 1, facts)
        position = dict(state.position)
        position["tile"] += 1
        position["before_tile"] += AffineNumber.of_unknown("all_steps")
        return self._start_pass(replace(state, position=position, flushed=False), 0, facts)

    def following(self, state: ProgramState, facts: LinearFacts) -> ProgramState | None:
        """Return the state after the next transition; None if the facts do not say which one it is."""
        if state.case != "steps":
            if state.written is not None:
                return None
            position = {**state.position, "tile": state.position["tile"] + 1}
            start = self.run.without_steps(state.position["tile"] * self.kernel.columns)
            return replace(state, position=position, written=(state.position["tile"], start))
        if state.pending:
            level = state.pending
            done = level < len(self.passes[state.pass_number].loops) and facts.equal(
                state.position["step"], state.position[f"end {level}"]
            )
            return self._close(state, level, facts) if done else None
        step, here, end = (state.position[name] for name in ("step", "here", "end 0"))
        pairs = (step, end), (here, AffineNumber.of_unknown("steps"))
        # The questions below and in `_step`: asked together they take Z3 one question, and the answers are kept.
        facts.find_implied(fact for pair in pairs for fact in (is_at_most(*pair, less=1), is_equal(*pair)))
        if facts.at_most(step, end, less=1):
            return self._step(state, facts)
        if facts.equal(step, end):
            return self._close(state, 0, facts)
        return None

    def next_segment(self, state: ProgramState) -> ProgramState:
        """Return the state at the end of a segment as the beginning of the next one."""
        position = dict(state.position)
        position["segment"] += 1
        position["before_segment"] += AffineNumber.of_unknown("steps")
        position["here"] = number(0)
        return replace(state, position=position)

    def begins_again(self, state: ProgramState) -> bool:
        """Return whether a pass is at the first step of a block over which another one of its chain ran before."""
        if state.case != "steps" or state.pass_number == self.chains[state.pass_number][0]:
            return False
        return state.position["step"] == state.position[f"start {len(state.accs[0]) - 1}"]

    def ends_segment(self, state: ProgramState, facts: LinearFacts) -> bool:
        """Return whether a state is known to be the end of a segment that another one follows."""
        steps, all_steps = AffineNumber.of_unknown("steps"), AffineNumber.of_unknown("all_steps")
        position = state.position
        return facts.equal(position["here"], steps) and facts.at_most(position["step"], all_steps, less=1)

    def _step(self, state: ProgramState, facts: LinearFacts) -> ProgramState | None:
        steps = AffineNumber.of_unknown("steps")
        if not facts.at_most(state.position["here"], steps, less=1):
            if not self.ends_segment(state, facts):
                return None
            state = self.next_segment(state)
        position = state.position
        place = StepPlace(
            steps, AffineNumber.of_unknown("all_steps"), position["before_tile"], position["step"], position["here"],
            lambda k: ("row", k, position["segment"]),
        )  # fmt: skip
        accs = tuple(
            (self.run.after_step(self._pass(state, group), group, place, levels[0]), *levels[1:])
            for group, levels in enumerate(state.accs)
        )
        after = {**position, "step": position["step"] + 1, "here": position["here"] + 1}
        return replace(state, position=after, accs=accs)

    def _pass(self, state: ProgramState, group: int) -> Pass:
        return self.kernel.of_group(self.passes[state.pass_number], group)

    def _close(self, state: ProgramState, level: int, facts: LinearFacts) -> ProgramState | None:
        """Return the state after the accumulators of a loop whose run ends were added to the next loop's."""
        outer = level + 1
        if outer == len(self.passes[state.pass_number].loops):
            carries = self.passes[state.pass_number].carries
            return self._next_of_chain(state, facts) if carries else self._flush(state, facts)
        accs = []
        for group, levels in enumerate(state.accs):
            new = list(levels)
            inside = levels[level]
            assert inside is not None
            new[outer] = self.run.widen(self._pass(state, group).loops[outer], levels[outer], inside)
            new[level] = None
            accs.append(tuple(new))
        position = {**state.position, f"runs {outer}": state.position[f"runs {outer}"] + 1}
        return self.settle(replace(state, accs=tuple(accs), position=position, pending=outer), facts)

    def _flush(self, state: ProgramState, facts: LinearFacts) -> ProgramState | None:
        tile = dict(state.tile)
        for group, levels in enumerate(state.accs):
            outermost = levels[-1]
            assert outermost is not None
            tile |= self.run.flush(self._pass(state, group), group, outermost, state.tile)
        if self.run.shift and state.pass_number + 1 == len(self.passes):
            step, all_steps = state.position["step"], AffineNumber.of_unknown("all_steps")
            if facts.equal(step, all_steps):
                tile = self.run.finish(tile)
            elif not facts.at_most(step, all_steps, less=1):
                return None  # It is not known whether this flush is the last.
        accs = tuple((None,) * len(levels) for levels in state.accs)
        now = state.position["tile"]
        if state.written is not None and state.written[0] != now:
            return None  # A path writes one tile.
        after = replace(state, accs=accs, tile=tile, flushed=True, written=(now, tile), pending=len(accs[0]))
        return self.settle(after, facts)

    def is_done(self, state: ProgramState, facts: LinearFacts) -> bool:
        """Return whether a state is known to be behind the last tile."""
        return not state.pending and facts.equal(state.position["tile"], AffineNumber.of_unknown("tiles"))
