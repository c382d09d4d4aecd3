"""Predicted and measured cycles of fusion groups: the constants of plain C in `network/fusion/cost.py`.

    python benchmarks/fusion_costs.py [--isa avx512] [--cpu zen4] [--rounds N] [--json] [--results FOLDER]

Each group is the only step of a network with an image of 32 x 32 pixels and 64 channels, on one thread. A cycle is one
step of a chain of dependent additions, timed alternately with the steps of the network; figures are medians of the
rounds. For a layer both figures are for its epilogue: the time beyond the time of the layer without one. Ratios are
measured cycles over predicted ones.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import report

from bitsynth import toolchain
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Integers
from bitsynth.host.placement import require_native
from bitsynth.isa.load import Isa, load
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.formulas import find_chain, step_function_of
from bitsynth.network.formulas.affine import find_affine
from bitsynth.network.formulas.curves import find_curve
from bitsynth.network.formulas.thresholds import make_thresholds
from bitsynth.network.fusion.affine import AffineGroup
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.fusion.cost import GroupCost, cost_of
from bitsynth.network.fusion.curves import CurveGroup
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.fusion.layer_maker import find_layer_maker, find_product
from bitsynth.network.fusion.layers import ProductGroup
from bitsynth.network.fusion.lookup import find_forks, match_lookup
from bitsynth.network.fusion.pair_tables import match_pair_node
from bitsynth.network.plain import plain_groups
from bitsynth.network.program import Buffer, NetworkProgram
from bitsynth.network.run import Network
from bitsynth.run.runner import Runner, runner_for

CHANNELS = 64
SHAPE = (1, CHANNELS, 32, 32)
SAMPLE_NANOSECONDS = 2e6
CHAIN_LOOPS, CHAIN_OPS = 5_000, 32
CHAIN = f"""#include <stdint.h>
int64_t chain(int64_t loops);
int64_t chain(int64_t loops) {{
    int64_t n = 0, one = 1;
    for (int64_t i = 0; i < loops; i++)
        __asm__ volatile(".rept {CHAIN_OPS}\\n\\tadd %1, %0\\n\\t.endr" : "+r"(n) : "r"(one));
    return n;
}}
"""
WIDTHS = ((2, 2),)
"""Bits of the layers."""
LEVELS = (1, 3, 7, 15, 31, 63, 255)


class Bench(GraphBuilder):
    """A small network in exact arithmetic."""

    def __init__(self) -> None:
        super().__init__("bench", "exact")
        self.rng = np.random.default_rng(0)

    def integers(self, name: str, low: int, high: int) -> str:
        """Add an input of integers from `low` to `high`."""
        return self.input(name, SHAPE, "float32", Integers.between(low, high, 0.5, 0.0))

    def scaled(self, given: str) -> str:
        """Multiply each channel by a number and add one."""
        gain, bias = (self.rng.uniform(low, 1, (CHANNELS, 1, 1)).astype(np.float32) for low in (0.5, -1))
        return self.add("add", self.add("mul", given, self.constant(gain)), self.constant(bias))

    def quantized(self, given: str, most: int, scale: float) -> str:
        """Add a quantizer to integers from 0 to `most`."""
        grid: dict[str, Any] = {"scale": np.asarray(scale, np.float32), "zero": np.asarray(0, np.float32)}
        more: dict[str, Any] = {"out_scale": np.asarray(scale, np.float64), "out_zero": np.asarray(0, np.float64)}
        limits: dict[str, Any] = {"low": 0, "high": most, "rounding": "ROUND", "zero_first": True, "real": "float32"}
        return self.add("quantize", given, **grid, **more, **limits)

    def used(self, *outputs: str, isa: str, cpu: str) -> DefUse:
        """Return the network with these results, for a target."""
        return DefUse(self.build(outputs), NetworkTarget(isa, 1, cpu))


Case = tuple[str, DefUse, FusionGroup]


def formulas(isa: str, cpu: str) -> Iterator[Case]:
    """Yield plain C from accumulators to codes."""
    target = {"isa": isa, "cpu": cpu}
    bench = Bench()
    x = bench.integers("x", -800, 800)
    used = bench.used(bench.quantized(bench.add("relu", bench.scaled(x)), 255, 1.7), **target)
    chain = find_chain(used, x)
    assert chain
    operand = operand_of(used.graph.edges[chain.end])
    step_function = step_function_of(used, chain)
    assert operand
    assert step_function
    affine = find_affine(step_function, operand, used.graph.edges[chain.end].integers)
    assert affine
    yield "affine formula", used, AffineGroup(used, chain, affine, operand, None)
    yield "the same nodes as plain C", used, plain_groups(used, used.graph.nodes)[0]
    bench = Bench()
    x = bench.integers("x", -800, 800)
    scaled = bench.scaled(x)
    used = bench.used(bench.quantized(bench.add("mul", scaled, bench.add("sigmoid", scaled)), 255, 1.7), **target)
    chain = next(find_forks(used, x, used.graph.nodes[0]))
    curve = find_curve(used.graph, chain, operand)
    assert curve
    yield "table of breakpoints", used, CurveGroup(used, chain, curve, operand)
    yield "the same nodes as plain C (sigmoid)", used, plain_groups(used, used.graph.nodes)[0]


def nodes(isa: str, cpu: str) -> Iterator[Case]:
    """Yield plain C of nodes: integers, real numbers, and these with a quantizer."""
    for name, low, high, count in (("integers", -(1 << 20), 1 << 20, 4), ("real numbers", -800, 800, 4)):
        bench = Bench()
        at = bench.integers("x", low, high)
        for _ in range(count):
            at = bench.add("neg", at) if name == "integers" else bench.scaled(at)
        used = bench.used(at, isa=isa, cpu=cpu)
        yield f"plain C of {len(used.graph.nodes)} nodes of {name}", used, plain_groups(used, used.graph.nodes)[0]


def glue(isa: str, cpu: str) -> Iterator[Case]:
    """Yield glue: tables of one and of two edges."""
    for most in (3, 15, 255):
        bench = Bench()
        x = bench.integers("x", 0, most)
        used = bench.used(bench.quantized(bench.add("tanh", x), most, 0.01), isa=isa, cpu=cpu)
        group = match_lookup(used, used.graph.nodes[0])
        assert group
        yield f"table of {most + 1}", used, group
        bench = Bench()
        x, y = bench.integers("x", 0, most), bench.integers("y", 0, most)
        for what, op in (("sum", "add"), ("product", "mul")):
            used = bench.used(bench.quantized(bench.add(op, x, y), most, 0.7), isa=isa, cpu=cpu)
            group = match_pair_node(used, used.graph.nodes[-2])
            if group:
                yield f"{what} of two of {most + 1}", used, group


def layers(isa: str, cpu: str) -> Iterator[Case]:
    """Yield layers: without an epilogue, then with thresholds."""
    window = SlidingWindow((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
    for levels in (0, *LEVELS):
        bench = Bench()
        x = bench.integers("x", 0, 3)
        weights = bench.constant(bench.rng.integers(-1, 2, (CHANNELS, CHANNELS, 1, 1)).astype(np.float32))
        sums = bench.add("conv", x, weights, window=window, groups=1)
        used = bench.used(bench.quantized(bench.scaled(sums), max(levels, 1), 20 / (levels + 1)), isa=isa, cpu=cpu)
        product = find_product(used, used.graph.nodes[0])
        assert product
        chain = find_chain(used, sums)
        assert chain
        step_function, operand = step_function_of(used, chain), operand_of(used.graph.edges[chain.end])
        assert step_function
        assert operand
        thresholds = make_thresholds(step_function, operand) if levels else None
        own = (*product.nodes, *(chain.nodes if levels else ()))
        maker = find_layer_maker(used, product, thresholds, own[-1].outputs[0])
        assert maker
        yield f"layer, {levels or 'no'} thresholds", used, ProductGroup(used, product, own, maker)


def bound(used: DefUse, group: FusionGroup, isa: str) -> Callable[[int], Callable[[], int]]:
    """Return a function from a number of runs to a call that runs the group so often."""
    graph, rng = used.graph, np.random.default_rng(0)
    inputs = {e: Buffer(e, graph.edges[e], group.reads(e)[0], "input") for e in group.inputs}
    outputs = {e: Buffer(e, graph.edges[e], group.writes(e)[0], "output") for e in group.outputs}
    step = group.step(inputs | outputs)
    program = NetworkProgram(graph, isa, 1, (step,), inputs | outputs, group.inputs, group.outputs, used.target.cpu)
    machine = Network(program)._machine
    block, tensors = machine.tensors()
    for name, buffer in inputs.items():
        kind = buffer.edge.integers
        values = rng.integers(kind.least, kind.most, buffer.edge.shape, endpoint=True)
        tensors[name].reshape(-1)[:] = buffer.format.write(values)
    machine.run(block)
    return lambda times: machine.bind(block, (0, 1), times)


@dataclass(frozen=True)
class Row:
    """A group: measured and predicted cycles."""

    group: str
    measured: float
    predicted: float

    @property
    def ratio(self) -> float:
        """Measured cycles to predicted ones."""
        return self.measured / self.predicted


def chain_of(isa: Isa) -> Runner:
    """Return a library with a chain of dependent additions, a cycle each."""
    return runner_for(isa, toolchain.compile_for(isa, {"chain.c": CHAIN}))


def timed(call: Callable[[], Any]) -> int:
    """Return the nanoseconds of processor time of a call."""
    start = time.thread_time_ns()
    call()
    return time.thread_time_ns() - start


def measure(isa: str, cpu: str, rounds: int) -> list[Row]:
    """Return measured and predicted cycles of every group."""
    cases = [case for make in (formulas, nodes, glue, layers) for case in make(isa, cpu)]
    runner = chain_of(load(isa))
    calls, counts = [], []
    for _, used, group in cases:
        make = bound(used, group, isa)
        counts.append(max(1, int(SAMPLE_NANOSECONDS / max(1, timed(make(1))))))
        calls.append(make(counts[-1]))
    samples: list[list[float]] = [[] for _ in cases]
    for _ in range(rounds):
        cycle = timed(lambda: runner.call("chain", CHAIN_LOOPS)) / (CHAIN_LOOPS * CHAIN_OPS)
        for own, call, count in zip(samples, calls, counts, strict=True):
            own.append(timed(call) / count / cycle)
    times = [statistics.median(own) for own in samples]
    return list(compared(cases, times))


def compared(cases: Sequence[Case], times: Sequence[float]) -> Iterator[Row]:
    """Yield rows; for layers rows of the epilogue, as if results had as many bytes as accumulators."""
    base: tuple[float, GroupCost] | None = None
    for (name, used, group), cycles in zip(cases, times, strict=True):
        cost = cost_of(group, used)
        if not isinstance(group, ProductGroup):
            yield Row(name, cycles, cost.cycles)
        elif base is None:
            base = cycles, cost
        else:
            written = base[1].floor - cost.floor
            yield Row(name, cycles - base[0] + written, cost.cycles - cost.floor)


def main() -> int:
    parser = report.timing_parser(__doc__, rounds=11)
    parser.add_argument("--cpu", default="", help="this processor's name in the set")
    given = parser.parse_args()
    require_native(load(given.isa).table)
    found = measure(given.isa, given.cpu, given.rounds)
    facts = report.facts(
        report.layers_basis(given.isa, WIDTHS),
        [given.isa],
        isa=given.isa,
        cpu=given.cpu,
        rows=[asdict(row) for row in found],
    )
    titles = ["group", "measured, cycles", "predicted", "ratio"]
    lines = [[r.group, f"{r.measured:,.0f}", f"{r.predicted:,.0f}", f"{r.ratio:.2f}"] for r in found]
    if given.results:
        title = f"Fusion groups on {given.isa}"
        report.write(
            given.results, f"fusion_costs_{given.isa}", title, __doc__ or "", facts, report.markdown(titles, lines)
        )
    report.tell(facts, (titles, lines), as_json=given.json)
    return 0


if __name__ == "__main__":
    report.run(main)
