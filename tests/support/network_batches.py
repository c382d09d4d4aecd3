"""Networks that run in one library: many small ones are compiled in a fraction of the time that each would take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from bitsynth import toolchain
from bitsynth.graph.arithmetic import Interval
from bitsynth.graph.reference import Evaluation
from bitsynth.graph.types import Edge, Integers, Tensor
from bitsynth.isa.load import Requirements, load
from bitsynth.network.machine import NetworkMachine
from bitsynth.network.run import Network
from bitsynth.run.runner import runner_for

QUICK = ("-O0",)
"""Flags of networks that run a few times."""


def compiled_together(isa: str, networks: Iterable[Network], flags: Sequence[str] = QUICK) -> None:
    """Compile networks for a set, each as it is and with every edge in a place of its own, in as few libraries."""
    left = [machine for net in networks for machine in (net._machine, net._tracing)]
    for k, machine in enumerate(left):
        machine.name = f"network{k}"
    texts = {machine.name: machine.shared_sources for machine in left}
    while left:
        shared: dict[str, str] = {}
        some = [m for m in left if _takes(shared, texts[m.name])]
        left = [m for m in left if m not in some]
        _compile(isa, some, shared, flags)


def _takes(shared: dict[str, str], more: dict[str, str]) -> bool:
    """Whether shared files can have more among them, which then are; not if one has another text."""
    fits = all(shared.get(name, text) == text for name, text in more.items())
    if fits:
        shared.update(more)
    return fits


def _compile(isa: str, machines: Sequence[NetworkMachine], shared: dict[str, str], flags: Sequence[str]) -> None:
    sources = {name: text for m in machines for name, text in _in_one_file(m).items()}
    needs = _together(isa, [m.text.needs for m in machines])
    library = toolchain.compile_for(load(isa), sources | shared, needs=needs, flags=flags, cached=shared)
    runner = runner_for(load(isa), library, needs=needs)
    for machine in machines:
        machine.__dict__["runner"] = runner


def _in_one_file(machine: NetworkMachine) -> dict[str, str]:
    """The C of a network's own in one file next to its headers: to start a compiler takes longer than most files do."""
    own = machine.own_sources
    headers = {name: text for name, text in own.items() if name.endswith(".h")}
    return {**headers, f"{machine.name}.c": "\n".join(text for name, text in own.items() if name not in headers)}


def _together(isa: str, needs: Sequence[Requirements]) -> Requirements:
    every = [load(isa).requirements(), *needs]
    parts = (tuple(dict.fromkeys(x for n in every for x in getattr(n, k))) for k in ("macros", "cc_flags", "host"))
    return Requirements(*parts)


def numbers(rng: np.random.Generator, edge: Edge) -> Tensor:
    """Numbers for an input: multiples of a quarter, or any integers that it has."""
    if isinstance(edge.type, Integers):
        return rng.integers(edge.type.least, edge.type.most + 1, edge.shape).astype(edge.dtype)
    return np.asarray(rng.integers(-18, 19, edge.shape) * 0.25, np.float32)


def same(values: Evaluation, name: str, got: Tensor) -> bool:
    """Whether an edge in C is the reference's: integers all, numbers but for what sums of float64 lose."""
    edge, want = values.graph.edges[name], values[name]
    if isinstance(edge.type, Integers) and got.dtype == np.int64:
        return np.array_equal(got, want)
    if isinstance(want, Interval) and got.dtype == np.float64:
        size = np.maximum(np.abs(want.low), np.abs(want.high))
        off = 1e-300 + 1e-9 * size + 1e-12 * size[np.isfinite(size)].max(initial=0)
        return bool(((got >= want.low - off) & (got <= want.high + off)).all())
    want = values.floats(name)
    if isinstance(edge.type, Integers):
        return np.array_equal(got, want)
    got, want = got.astype(np.float64), want.astype(np.float64)
    return np.allclose(got, want, rtol=1e-6, atol=1e-6 * np.abs(want[np.isfinite(want)]).max(initial=0), equal_nan=True)
