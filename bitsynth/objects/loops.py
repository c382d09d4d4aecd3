"""The loop rule: machine code that is right for all sizes, shown by induction over the transitions of the program.

Sizes and addresses of buffers are unknown. Where the code comes back to an instruction, a loop's head, its state is
related to a state of the proved program: each general register and word of the stack is a sum of the program's position
times integers, and each of the program's accumulators is in a vector register or on the stack.

    head of the loop over steps:   r10 = 4 here,  r11 = w + 64 (before_tile + step),  rbx = steps left of this run
                                   ymm14 = accumulator 0 of row 0, ...

The relations are found as the smallest that hold (`hull.py`), and then checked: every path from a head, on whatever
numbers the relations allow, must end at a head, in a state that is related to what the program has after some of its
transitions, or return when the program is done. So by induction every call computes what the program does.

Any state of the program that fits may be chosen at the end of a path: whichever it is, all relations are checked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any, NamedTuple

from bitsynth.objects.affine import RETURN_BASE, STACK_BASE, AffineNumber, GeneralNumber, is_place, number
from bitsynth.objects.affine_memory import AccessedBytes, AffineMemory
from bitsynth.objects.facts import KnownFacts, LinearFact, LinearFacts, sum_is, z3_fact
from bitsynth.objects.hull import AffineHull
from bitsynth.objects.memory import NotShown
from bitsynth.objects.operands import WORD, GeneralContent, affine_of
from bitsynth.objects.processor import CodeProcessor
from bitsynth.objects.program_state import CASES, PARAMETERS, ProgramMachine, ProgramMode, ProgramState
from bitsynth.objects.reference import ProgramRun
from bitsynth.objects.values import Byte, Content, Operation

_MAX_PATH = 20_000
"""The most instructions between two loop heads."""
_MAX_TRANSITIONS = 64
"""The most transitions of the program between two loop heads."""
_MAX_HEADS, _MAX_ROUNDS, _MAX_PATHS = 40, 400, 400
"""The most loop heads, visits of all heads, and paths from one head."""
_RETURNED = -1
"""What stands for the address that the function returns to."""
_MOST_WORDS = 2
"""The most numbers of general registers that a vector register holds."""
_MOST_SOLVED = 1 << 28
"""Sums with greater numbers are not solved: no product of two sums with smaller ones leaves 64 bits."""
_MOST_IN_POSITION = 1 << 32
"""The greatest number in a position, which stays the same integer when solved sums are put in for its unknowns."""
HeadKey = tuple[int, ProgramMode]
"""A loop head: its address, and what the program's state there is but for its numbers and contents."""
OrderBound = tuple[tuple[Hashable, ...], Hashable, int]
"""Numbers, another number, and by how much that is at least greater than their sum."""
ValuePlace = tuple[str, Hashable]
"""A place that holds a value: ("general", register), ("stack", address), ("vector", number) or ("byte", address)."""


class TileRegister(NamedTuple):
    """What stands for a register of the program's tile, as it was after the last flush or as it starts."""

    row: int
    column: int


class _NewHead(Exception):
    """The code comes back to an address that is no loop head yet."""

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self.address = address


@dataclass
class LoopHead:
    """What is known of the states at a loop head.

    Attributes:
        numbers: The sums that general registers and words of the stack are.
        data: Contents, and bytes of the stack, that are the same whenever the head is reached, and `TileRegister` for a
            vector register that holds a register of the tile.
        accs: The places of each accumulator, by group of rows, loop and name.
        bounds: Orders of two numbers that hold.
        stack: The stack pointer.
    """

    numbers: AffineHull
    data: dict[ValuePlace, Hashable]
    accs: dict[tuple[int, int, Hashable], set[ValuePlace]]
    bounds: set[OrderBound]
    stack: GeneralNumber


@dataclass
class _Arrival:
    """The state at the end of a path that reached a loop head."""

    key: HeadKey
    numbers: dict[Hashable, AffineNumber]
    data: dict[ValuePlace, Hashable]
    accs: dict[tuple[int, int, Hashable], set[ValuePlace]]
    stack: GeneralNumber
    facts: LinearFacts
    transitions: int = 0


@dataclass
class LoopProof:
    """What was shown: the heads of all loops, by address, and the number of paths between them."""

    heads: list[int] = field(default_factory=list)
    paths: int = 0


@dataclass
class LoopRule:
    """The rule for one function of an object.

    Attributes:
        outer_first: Whether loops around others are visited before those. What is proposed of a head depends on the
            first state that reaches it, so one order may find relations where the other finds none.
    """

    processor: CodeProcessor
    memory: AffineMemory
    run: ProgramRun
    address: int
    outer_first: bool = True
    cuts: set[int] = field(default_factory=set)
    heads: dict[HeadKey, LoopHead] = field(default_factory=dict)
    _fixed: dict[Hashable, bool] = field(default_factory=dict)
    _left: list[HeadKey | str] = field(default_factory=list)
    _visited: dict[HeadKey | str, set[int]] = field(default_factory=dict)
    _starts: dict[HeadKey | str, _Start] = field(default_factory=dict)

    def is_fixed(self, content: Content) -> bool:
        """Return whether a content is the same throughout a call: a number, or of bytes that no position decides."""
        return content.is_known or all(self.is_fixed_source(x[0]) for x in content.data if isinstance(x, tuple))

    def is_fixed_source(self, source: Hashable) -> bool:
        """Return whether what an operation or an array in memory is does not depend on the position."""
        if source not in self._fixed:
            if isinstance(source, Operation):
                fixed = all(map(self.is_fixed, source.args))
            elif isinstance(source, AffineNumber):
                fixed = is_place(source)
            elif isinstance(source, tuple) and len(source) == 2:
                name, where = source[0], source[1]
                of_parameters = isinstance(where, AffineNumber) and {key for key, _ in where.terms} <= {*PARAMETERS}
                fixed = name == "register" or (isinstance(name, str) and of_parameters)
            else:
                fixed = isinstance(source, str)
            self._fixed[source] = fixed
        return self._fixed[source]

    def where(self, address: int) -> str:
        """Return the function, the address in the file, and the mnemonic of an instruction."""
        file, text = self.processor.file, self.processor.text.get(address, "no instruction")
        function = file.function_at(address)
        return f"{function[0] if function else ''} at {file.in_file(address):#x}: {text.split()[0]}"

    def prove(self) -> LoopProof:
        """Return what was shown; NotShown says where the rule does not apply."""
        self._program = ProgramMachine(self.run)
        self._left = list(reversed(CASES))
        while len(self.cuts) <= _MAX_HEADS:
            try:
                return self._find_fixed_point()
            except _NewHead as new:
                # What is known of the other heads holds for states that are reached, so it stays.
                self.cuts.add(new.address)
                through = [x for x, addresses in self._visited.items() if new.address in addresses]
                self._left += [x for x in through if x not in self._left]
        raise NotShown(f"it has more than {_MAX_HEADS} loops")

    def _find_fixed_point(self) -> LoopProof:
        left = self._left
        for _ in range(_MAX_ROUNDS):
            if not left:
                break
            start = left.pop()
            for arrival in self._arrivals(start, check=False):
                if self._join(arrival) and (self.outer_first or arrival.key not in left):
                    if arrival.key in left:  # A loop around others comes before them, as it changes what they know.
                        left.remove(arrival.key)
                    left.append(arrival.key)
                    if arrival.key == start:  # Its other paths are followed with what is known now.
                        break
        else:
            raise NotShown("no relations were found that hold at all loop heads")
        return self._check()

    def _check(self) -> LoopProof:
        """Check each path from each head with the relations as they are: none may change."""
        proof = LoopProof([self.processor.file.in_file(address) for address in sorted(self.cuts)])
        idle: dict[HeadKey, set[HeadKey]] = {}
        starts: list[HeadKey | str] = [*CASES, *self.heads]
        for start in starts:
            for arrival in self._arrivals(start, check=True, count=proof):
                if self._join(arrival):
                    raise NotShown("no relations were found that hold at all loop heads")
                if not arrival.transitions and not isinstance(start, str):
                    idle.setdefault(start, set()).add(arrival.key)
        for head in idle:
            seen, left = set[HeadKey](), [head]
            while left:
                for key in idle.get(left.pop(), ()):
                    if key == head:
                        raise NotShown(f"{self.where(head[0])}: a loop may run without a step")
                    if key not in seen:
                        seen.add(key)
                        left.append(key)
        return proof

    def _arrivals(self, key: HeadKey | str, *, check: bool, count: LoopProof | None = None) -> Iterator[_Arrival]:
        """Yield the states at the ends of all paths from a head, or from the entry of the function in a case."""
        start = self._start(key)
        for end in self._ends(start):
            start.facts.go_to(end.known)
            if check:
                try:
                    self.memory.check_accesses(end.accesses, start.facts)
                except NotShown as why:
                    raise NotShown(f"{self.where(self.memory.at)}: {why}") from None
            if count is not None:
                count.paths += 1
            if end.arrival is not None:
                yield end.arrival

    def _ends(self, start: _Start) -> Iterator[_End]:
        """Yield the ends of all paths from a head; they are followed once, as long as nothing else is known of it."""
        if start.ends is not None:
            yield from start.ends
            return
        prefixes: list[list[bool]] = [[]]
        visited = self._visited.setdefault(start.key, set())
        ends: list[_End] = []
        while prefixes:
            if len(ends) == _MAX_PATHS:
                raise NotShown("there are too many paths between its loops")
            path = _Path(self, start, prefixes.pop())
            try:
                arrival = path.follow()
            except NotShown as why:
                raise NotShown(f"{self.where(path.memory.at)}: {why}") from None
            finally:
                visited.update(path.visited)
            prefixes += path.others
            ends.append(_End(arrival, start.facts.known, self.memory.accesses))
            yield ends[-1]
        start.ends = ends

    def _start(self, key: HeadKey | str) -> _Start:
        """Return the common beginning of all paths from a head, or from the entry in a case.

        If nothing of it changed since the last call, its paths are kept. If only its numbers are the same, answers to
        questions about these numbers are kept.
        """
        old, new = self._starts.get(key), _Start(key, frozenset(self.cuts))
        if not isinstance(key, str):
            head = self.heads[key]
            new.numbers, new.zeros = self._numbers_at(head)
            new.bounds = frozenset(_fact(bound, new.numbers) for bound in head.bounds)
            new.data, new.stack = dict(head.data), head.stack
            new.accs = {acc: frozenset(places) for acc, places in head.accs.items()}
        if old == new:
            return old
        if old and (old.numbers, old.zeros, old.bounds) == (new.numbers, new.zeros, new.bounds):
            new.facts = old.facts
        self._starts[key] = new
        return new

    @staticmethod
    def _numbers_at(head: LoopHead) -> tuple[dict[Hashable, AffineNumber], list[AffineNumber]]:
        """Return the numbers at a head, with the addresses of rows of its segment, and sums that are 0."""
        numbers, zeros = head.numbers.sums()
        if "segment" in numbers:
            pointers: dict[Hashable, AffineNumber] = {
                name: AffineNumber.of_unknown(("row", name[1], numbers["segment"]))
                for name in numbers
                if isinstance(name, tuple) and name[0] == "pointer"
            }
            numbers = {name: x.replace(pointers) for name, x in numbers.items()}
        return numbers, zeros

    def _join(self, new: _Arrival) -> bool:
        """Widen what is known of a head so that it holds for a state that reached it; return whether it changed.

        Everything that is known can only become less: fewer equalities between numbers, data, places and bounds. So
        there are finitely many changes. Bounds are proposed when a head is new and tested on each state that reaches
        it; a bound that held of states found earlier, under more relations than are left now, is tested again in
        `_check`, where nothing may change.
        """
        head = self.heads.get(new.key)
        if head is None:
            self.heads[new.key] = head = self._new_head(new)
            return True
        if head.stack != new.stack:
            raise NotShown("the stack pointer differs between two ways to a loop head")
        changed = False
        for name in [x for x in head.numbers.names if x not in new.numbers]:
            head.numbers.forget(name)
            head.bounds = {bound for bound in head.bounds if name not in (*bound[0], bound[1])}
            changed = True
        changed |= head.numbers.join(new.numbers)
        for place in [x for x, content in head.data.items() if new.data.get(x) != content]:
            del head.data[place]
            changed = True
        for acc, places in head.accs.items():
            if not places <= new.accs[acc]:
                places.intersection_update(new.accs[acc])
                changed = True
                if not places:
                    raise NotShown(
                        f"{self.where(new.key[0])}: accumulator {acc[2]} of row {acc[0]} is not in one place"
                    )
        holds = _holding(head.bounds, new)
        changed |= holds != head.bounds
        head.bounds = holds
        return changed

    def _new_head(self, new: _Arrival) -> LoopHead:
        names = list(new.numbers)
        rank: dict[Hashable, int] = {x: k for k, x in enumerate(names) if isinstance(x, str) or _is_address(x)}
        hull = AffineHull(names, lambda name: rank.get(name, len(names)))
        head = LoopHead(hull, dict(new.data), dict(new.accs), set(), new.stack)
        head.numbers.join(new.numbers)
        levels = [name for name in names if isinstance(name, str) and name.startswith("end ")]
        bounds: list[OrderBound] = [(("step",), end, 1) for end in levels]
        bounds += [(("step",), "all_steps", 1), (("here",), "steps", 1), (("tile",), "tiles", 1)]
        counts = [x for x in names if isinstance(x, tuple) and not any(map(_is_address, new.numbers[x].unknowns))]
        counts = [x for x in counts if "ldc" not in new.numbers[x].unknowns]
        bounds += [((), x, n) for x in counts for n in (0, 1)]
        bounds += [((of, x), end, 0) for x in counts for of, end in (("here", "steps"), ("step", "end 0"))]
        begun = [x for x in counts if new.numbers[x] == number(0)]  # They count up to a number that is another count.
        bounds += [((x,), y, 1) for x in begun for y in counts if y not in begun]
        head.bounds = _holding([bound for bound in bounds if {*bound[0], bound[1]} <= {*names}], new)
        return head


@dataclass
class _Start:
    """What all paths from a head, or from the entry in a case, begin with, and their ends once they were followed."""

    key: HeadKey | str
    cuts: frozenset[int]
    numbers: dict[Hashable, AffineNumber] = field(default_factory=dict)
    zeros: list[AffineNumber] = field(default_factory=list)
    bounds: frozenset[LinearFact] = frozenset()
    data: dict[ValuePlace, Hashable] = field(default_factory=dict)
    accs: dict[tuple[int, int, Hashable], frozenset[ValuePlace]] = field(default_factory=dict)
    stack: GeneralNumber = 0
    facts: LinearFacts = field(default_factory=LinearFacts, compare=False)
    ends: list[_End] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class _End:
    """The end of a path: the state there, None if the path returned; its facts; and its reads and writes."""

    arrival: _Arrival | None
    known: KnownFacts
    accesses: AccessedBytes


class _Path:
    """One path through the code, from a head to the next."""

    def __init__(self, rule: LoopRule, start: _Start, choices: list[bool]) -> None:
        self._rule, self._start, self._key, self._choices = rule, start, start.key, choices
        self._asked, self._taken = 0, 0
        self.others: list[list[bool]] = []
        self.visited: dict[int, int] = {}
        processor, program = rule.processor, rule._program
        self._processor, self._program, self._facts = processor, program, start.facts
        self._numbers = start.numbers
        self._values = processor.values
        self.memory = rule.memory
        self.memory.begin(self._facts)
        self._case = self._key if isinstance(self._key, str) else self._key[1].case
        if self._facts.is_marked:
            self._facts.rewind()
        else:
            program.assume_sizes(self._case, self._facts)

    def follow(self) -> _Arrival | None:
        """Run to the next head and return the state there; None if the function returned and the program is done."""
        rule, processor = self._rule, self._processor
        registers = processor.registers
        registers.decide, registers.products = self._decide, self._program.products(self._case)
        try:
            kept = self._enter()
            address, state = self._begin(kept)
            self._first = state
            self.memory.tile, self.memory.has_tile = state.position["tile"], state.flushed
            visited = self.visited
            for _ in range(_MAX_PATH):
                if visited.setdefault(address, self._asked) != self._asked and address not in rule.cuts:
                    raise _NewHead(address)
                visited[address] = self._asked
                address = processor.step(address)
                if address == _RETURNED or address in rule.cuts:
                    break
            else:
                raise NotShown(f"{_MAX_PATH:,} instructions reach no loop head")
        finally:
            registers.decide = None
        returned = address == _RETURNED
        if returned:
            processor.require_kept(kept)
        self._by_byte = dict[Byte, list[int]]()
        for at, byte in self.memory.written.items():
            self._by_byte.setdefault(byte, []).append(at)
        states = self._states(state)
        for transitions, after in reversed(list(enumerate(states))):
            if returned:
                if self._program.is_done(after, self._facts) and self._wrote(after):
                    return None
            elif arrival := self.arrival(address, after):
                arrival.transitions = transitions
                return arrival
        what = "returns" if returned else f"is at the loop head {self._processor.file.in_file(address):#x}"
        raise NotShown(f"no state of the program, up to {len(states) - 1} transitions on, is that in which it {what}")

    def _enter(self) -> dict[str, GeneralContent]:
        """Set registers and stack as a caller does."""
        known = {"tiles": 0} if self._case == "no tiles" else {}
        names = ("tiles", "segments", "steps", "&a", "&w", "&g", "&h", "&c", "ldc")
        numbers = [known.get(name, AffineNumber.of_unknown(name)) for name in names]
        held = self._processor.registers.hold
        self.memory.arrays = list(self._processor.file.constants)
        back = AffineNumber.of_unknown(RETURN_BASE)
        self._processor.returns[back] = _RETURNED
        return self._processor.enter([held(x) for x in numbers], stack=AffineNumber.of_unknown(STACK_BASE), back=back)

    def _begin(self, kept: dict[str, GeneralContent]) -> tuple[int, ProgramState]:
        """Set the state at the start of the path; return the address of its code, and the program's state."""
        if isinstance(self._key, str):
            if not self._facts.is_marked:
                self._facts.mark()
            return self._rule.address, self._program.initial(self._key, self._facts)
        address, mode = self._key
        facts, registers, memory = self._facts, self._processor.registers, self.memory
        numbers = self._numbers
        registers.reset()
        for name in registers.general:
            registers.general[name] = self._values.memory(("lost", name), 0, WORD)
        for k in registers.vector:  # Not what they were at the start of the call, which `reset` gives them.
            registers.vector[k] = self._values.memory(("lost", k), 0, len(registers.vector[k]))
        memory.written.clear()
        registers.set_stack(registers.hold(self._start.stack))
        self._place_data()
        accs = self._place_accs(mode)
        position = {name: x for name, x in numbers.items() if isinstance(name, str) and name not in PARAMETERS}
        state = self._program.make_unknown(mode, position, accs)
        for (_, where), content in self._start.data.items():
            if isinstance(content, TileRegister):
                registers.vector[where] = state.tile[content]  # type: ignore[index]
        if not facts.is_marked:
            facts.assume(*(facts.term(zero) == 0 for zero in self._start.zeros))
            facts.equalities += self._start.zeros
            facts.assume(*map(z3_fact, self._start.bounds))
            self._program.assume_position(state, facts)
            facts.mark()
        return address, state

    def _place_data(self) -> None:
        registers, memory = self._processor.registers, self.memory
        for place, content in self._start.data.items():
            kind, where = place
            if kind == "byte":
                memory.written[where] = content  # type: ignore[index, assignment]
            elif kind == "general":
                registers.general[str(where)] = content  # type: ignore[assignment]
            elif not isinstance(content, TileRegister):
                registers.vector[where] = content  # type: ignore[index, assignment]
        numbers = self._numbers
        for name, x in numbers.items():
            if isinstance(name, tuple) and name[0] == "general":
                registers.general[str(name[1])] = registers.hold(x)
            elif isinstance(name, tuple) and name[0] == "vector word" and name[1][1] == 0:
                k, _, count = name[1]
                words = [numbers.get(("vector word", (k, n, count))) for n in range(count)]
                if None not in words:
                    data = [b for w in words if w is not None for b in registers.content(registers.hold(w)).data]
                    registers.vector[k] = self._values.content(data)
            elif isinstance(name, tuple) and name[0] == "stack":
                for k, byte in enumerate(registers.content(registers.hold(x)).data):
                    memory.written[name[1] + k] = byte

    def _place_accs(self, mode: ProgramMode) -> Any:
        program = self._program
        out: list[tuple[Any, ...]] = []
        if mode.case != "steps":
            return ()
        for group in range(program.kernel.groups):
            levels: list[Any] = []
            for level, loop in enumerate(program.passes[mode.pass_number].loops):
                if mode.began[level]:
                    levels.append(None)
                    continue
                contents = {}
                for acc in loop.accs:
                    size = len(program.run.zeros(loop)[acc.name])
                    content = self._values.memory(("accumulator", group, level, acc.name), 0, size)
                    contents[acc.name] = content
                    for kind, where in self._start.accs[group, level, acc.name]:
                        if kind == "vector":
                            self._processor.registers.vector[where] = content  # type: ignore[index]
                        else:
                            for k, byte in enumerate(content.data):
                                self.memory.written[where + k] = byte  # type: ignore[operator]
                levels.append(contents)
            out.append(tuple(levels))
        return tuple(out)

    def _decide(self, kind: str, a: GeneralNumber, b: GeneralNumber) -> bool:
        """Return whether a comparison holds; where both are possible, take one and leave the other for later."""
        gap, facts = number(a) - b, self._facts
        if kind == "equal" and not gap.terms:
            return gap.number == 0
        self._asked += 1
        fact = facts.comparison(kind, a, b)
        result = facts.implies(fact)
        if not result and not facts.implies(fact.opposite):
            if self._taken == len(self._choices):
                self.others.append([*self._choices, False])
                self._choices = [*self._choices, True]
            result = self._choices[self._taken]
            self._taken += 1
            facts.assume_fact(fact if result else fact.opposite)
        if kind == "equal" and result:
            facts.equalities.append(gap)
            self._make_known(gap)
        return result

    def _make_known(self, zero: AffineNumber) -> None:
        """Give general registers that hold a sum that is 0, or a known distance from it, that number.

        Compilers use what they compared with 0 as a 0.
        """
        registers = self._processor.registers
        for name, x in registers.general.items():
            affine = None if isinstance(x, int) else affine_of(x)
            for sign in (1, -1):
                rest = affine - zero * sign if affine is not None else zero
                if not rest.terms:
                    registers.general[name] = registers.hold(rest)

    def _states(self, state: ProgramState) -> list[ProgramState]:
        """Return the states of the program after no transition, one and so on, as far as the facts decide them."""
        states = [state]
        while len(states) <= _MAX_TRANSITIONS:
            following = self._program.following(self._program.settle(states[-1], self._facts), self._facts)
            if following is None:
                break
            states.append(following)
        return [self._program.settle(x, self._facts) for x in states]

    def _wrote(self, state: ProgramState) -> bool:
        """Return whether the result holds what the program wrote on this path, and nothing else was written."""
        result, values = self.memory.result, self._values
        if state.written is None:
            return not result
        tile, registers = state.written
        if not self._facts.equal(tile, self.memory.tile):
            return False
        for (row, column), want in registers.items():
            data = [result.get((row, 4 * column + k)) for k in range(len(want))]
            if None in data or not values.same(values.content([x for x in data if x is not None]), want):
                return False
        return True

    def _places_of_accs(self, state: ProgramState) -> dict[tuple[int, int, Hashable], set[ValuePlace]] | None:
        """Return the places of the accumulators; None if one has no place, or the code is not where the program is."""
        if state.pending or not self._wrote(state):
            return None
        out: dict[tuple[int, int, Hashable], set[ValuePlace]] = {}
        for group, levels in enumerate(state.accs):
            for level, accs in enumerate(levels):
                for name, content in (accs or {}).items():
                    places = self._places(content)
                    if not places:
                        return None
                    out[group, level, name] = places
        return out

    def _places(self, content: Content) -> set[ValuePlace]:
        vector, written = self._processor.registers.vector, self.memory.written
        places: set[ValuePlace] = {("vector", k) for k, x in vector.items() if x is content}
        data = content.data
        for at in self._by_byte.get(data[0], ()):
            if all(written.get(at + k) == byte for k, byte in enumerate(data)):
                places.add(("stack", at))
        return places

    def arrival(self, address: int, state: ProgramState) -> _Arrival | None:
        """Return the state at the end of the path, related to a state of the program; None if they do not fit.

        All numbers are sums of unknowns of the head at which the path began. The address of row k is an unknown of its
        own in each segment; in the segment of `state` it becomes ("pointer", k), the same name whatever the segment,
        so that a head can relate a register to it. Equalities that the path decided are solved and put in. A number
        that still names the row of another segment is left out: then nothing is known of what holds it.

            at the end of a segment:   rsi = row 0 of segment + 1   is "pointer 0" of the state that begins it
        """
        accs = self._places_of_accs(state)
        if accs is None:
            return None
        numbers, data = self._find_contents(state)
        mode = state.mode
        if state.case == "steps" and self._program.ends_segment(state, self._facts):
            following = self._program.next_segment(state)
            first = ("row", 0, following.position["segment"])
            if self._program.begins_again(state):
                mode = mode._replace(at_segment_end=True)
            elif any(first in dict(x.terms) for x in numbers.values()):
                state = following
        rows = range(self._program.kernel.rows) if "segment" in state.position else ()
        pointers: dict[Hashable, AffineNumber] = {
            ("row", k, state.position["segment"]): AffineNumber.of_unknown(("pointer", k)) for k in rows
        }
        named: dict[Hashable, AffineNumber] = {name: AffineNumber.of_unknown(name) for name in PARAMETERS}
        named |= {("pointer", k): AffineNumber.of_unknown(("pointer", k)) for k in rows}
        named.update(state.position)
        zeros = [*self._facts.all_equalities(), *self._program.find_decided_ends(self._first, self._facts)]
        solved = _solve([x.replace(pointers) for x in zeros])
        named |= numbers
        if not all(_is_small(x, _MOST_IN_POSITION) for x in state.position.values()):
            raise NotShown("the position in the program is a sum of numbers that are too large")
        renamed = {name: x.replace(pointers).replace(solved) for name, x in named.items()}
        kept = {name: x for name, x in renamed.items() if not any(_is_row(key) for key, _ in x.terms)}
        registers = self._processor.registers
        stack = registers.number(registers.general[registers.table.stack])
        return _Arrival((address, mode), kept, data, accs, stack, self._facts)

    def _words(self, content: Content) -> list[AffineNumber]:
        """Return the words of a vector register that holds numbers of general registers; none if it does not."""
        if len(content) > _MOST_WORDS * WORD:
            return []
        words = [self._values.content(content.data[n : n + WORD]) for n in range(0, len(content), WORD)]
        numbers = [number(x.as_int) if x.is_known else affine_of(x) for x in words]
        return [x for x in numbers if x is not None] if None not in numbers else []

    def _find_contents(self, state: ProgramState) -> tuple[dict[Hashable, AffineNumber], dict[ValuePlace, Hashable]]:
        """Return the numbers, and the other contents, in general registers, vector registers and on the stack."""
        registers, written = self._processor.registers, self.memory.written
        numbers: dict[Hashable, AffineNumber] = {}
        data: dict[ValuePlace, Hashable] = {}
        for name, x in registers.general.items():
            if name == registers.table.stack:
                continue
            affine = number(x) if isinstance(x, int) else affine_of(x)
            if affine is not None and not is_place(affine):
                numbers["general", name] = affine
            elif isinstance(x, Content) and self._rule.is_fixed(x):
                data["general", name] = x
        tile = {content: TileRegister(*place) for place, content in reversed(state.tile.items())}
        for k, content in registers.vector.items():
            words = self._words(content)
            if content in tile:
                data["vector", k] = tile[content]
            elif words:
                numbers |= {("vector word", (k, n, len(words))): x for n, x in enumerate(words)}
            elif self._rule.is_fixed(content):
                data["vector", k] = content
        on_stack = dict(self._stack_words())
        numbers |= {("stack", at): x for at, x in on_stack.items()}
        taken = {at + k for at in on_stack for k in range(WORD)}
        for at, byte in written.items():
            if at not in taken and (isinstance(byte, int) or self._rule.is_fixed_source(byte[0])):
                data["byte", at] = byte
        return numbers, data

    def _stack_words(self) -> Iterator[tuple[int, AffineNumber]]:
        """Yield the numbers of general registers on the stack, by their addresses."""
        written = self.memory.written
        for at, byte in written.items():
            if at % WORD or not (isinstance(byte, int) or isinstance(byte[0], AffineNumber)):
                continue
            word = [x for k in range(WORD) if (x := written.get(at + k)) is not None]
            if len(word) == WORD:
                content = self._values.content(word)
                affine = number(content.as_int) if content.is_known else affine_of(content)
                if affine is not None and not is_place(affine):
                    yield at, affine


def _fact(bound: OrderBound, numbers: Mapping[Hashable, AffineNumber]) -> LinearFact:
    """Return the fact that a bound is of numbers."""
    return sum_is("at least 0", (numbers[bound[1]],), [numbers[name] for name in bound[0]], -bound[2])


def _holding(bounds: Iterable[OrderBound], new: _Arrival) -> set[OrderBound]:
    """Return the bounds that hold in a state, out of some bounds."""
    facts = {bound: _fact(bound, new.numbers) for bound in bounds}
    implied = new.facts.find_implied(facts.values())
    return {bound for bound, fact in facts.items() if fact in implied}


def _is_row(key: Hashable) -> bool:
    return isinstance(key, tuple) and key[0] == "row"


def _solve(equalities: list[AffineNumber]) -> dict[Hashable, AffineNumber]:
    """Return unknowns as sums of others, from sums that are 0."""
    out: dict[Hashable, AffineNumber] = {}
    for equality in equalities:
        if not _is_small(equality) or not _is_small(zero := equality.replace(out)):
            continue
        shared = gcd(zero.number, *(times for _, times in zero.terms))
        units = [(key, times // shared) for key, times in zero.terms if abs(times) == shared and not _is_address(key)]
        if not units:
            continue
        key, times = min(units, key=lambda x: (x[0] in PARAMETERS, isinstance(x[0], str)))
        divided = AffineNumber(zero.number // shared, {k: n // shared for k, n in zero.terms})
        value = (AffineNumber.of_unknown(key) * times - divided) * times
        solved = {name: x.replace({key: value}) for name, x in out.items()} | {key: value}
        if all(map(_is_small, solved.values())):
            out = solved
    return out


def _is_small(x: AffineNumber, most: int = _MOST_SOLVED) -> bool:
    return max(map(abs, (x.number, *(times for _, times in x.terms)))) <= most


def _is_address(key: Hashable) -> bool:
    return (isinstance(key, tuple) and key[0] in {"row", "pointer"}) or (isinstance(key, str) and key[0] == "&")
