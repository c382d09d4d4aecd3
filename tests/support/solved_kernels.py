"""Kernels of every method: shipped kernels, and others, each synthesized once a run and not proved."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from filelock import FileLock

from bitsynth import paths
from bitsynth.isa.step import from_json, to_json
from bitsynth.kernel.program import Kernel
from bitsynth.proof.matmul import examine
from bitsynth.proof.proved import Proved, statements
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from bitsynth.spec.options import KernelOptions
from bitsynth.store.accept import accept
from bitsynth.store.entry import Entry, ProvedEntry
from bitsynth.store.matmul import MATMUL
from bitsynth.synth import synthesize

Config = tuple[str, str, int, int]

REPRESENTATIVE: list[Config] = [
    ("avx2", "popcount", 2, 1),
    ("avx2", "lookup", 2, 2),
    ("avx2", "lookup", 3, 2),
    ("avx2", "multiply", 2, 2),
    ("neon", "popcount", 2, 2),
    ("neon", "lookup", 2, 1),
    ("neon", "pairs", 2, 1),
    ("neon", "multiply", 2, 2),
    ("armv7_neon", "popcount", 1, 1),
    ("armv7_neon", "lookup", 1, 2),
    ("armv7_neon", "multiply", 3, 2),
    ("avxvnni", "dot", 2, 2),
    ("neon_dotprod", "dot", 3, 1),
    ("avx512", "lookup", 2, 1),
    ("avx512", "dot", 1, 1),
    ("neon", "fip", 3, 3),
]
"""Every method, rows together, operands in either place, one pass and several, tables of 4 and of 6 bits."""

RUNNABLE = [c for c in REPRESENTATIVE if c[0] in ("avx2", "neon", "armv7_neon")]
"""Those whose instruction set any machine of the CI runs or emulates."""


def name(config: Config) -> str:
    """How a test of it is called."""
    isa, method, act_bits, w_bits = config
    return f"{isa}-{method}-a{act_bits}w{w_bits}"


def spec_of(isa: str, act_bits: int, w_bits: int) -> MatmulSpec:
    return MatmulSpec(isa, MatmulOperand(act_bits, Encoding.UNSIGNED), MatmulOperand(w_bits, Encoding.BIPOLAR))


def entry(isa: str, method: str, act_bits: int, w_bits: int) -> Entry:
    """The text of `proved_entry`."""
    return proved_entry(isa, method, act_bits, w_bits).entry


@cache
def proved_entry(isa: str, method: str, act_bits: int, w_bits: int) -> ProvedEntry:
    """A checked kernel, as if it had been asked for by its method and its lemmas were on record as discharged."""
    path = Path(os.environ["BITSYNTH_TEST_SOLVED"], f"{name((isa, method, act_bits, w_bits))}.json")
    with FileLock(f"{path}.lock"):
        if not path.exists():
            path.write_bytes(to_json(_solved(isa, method, act_bits, w_bits)))
    text = from_json(path.read_bytes(), Entry)
    return accept(text)


def _solved(isa: str, method: str, act_bits: int, w_bits: int) -> Entry:
    spec, options = spec_of(isa, act_bits, w_bits), KernelOptions(method)
    path = MATMUL.find_for(spec, options)
    if path and path.is_relative_to(paths.shipped_kernels()):
        entry = MATMUL.read(path)
        minimal, bound = entry.certificate.minimality, entry.cost.lower_bound
        return ProvedEntry(on_record(entry.kernel), options, minimal, bound, entry.runners_up).entry
    (best,), others = synthesize.candidates(options.isa(isa), spec, options, Budget())
    return ProvedEntry(on_record(best.kernel), options, best.claims, best.bound, others).entry


def on_record(kernel: Kernel) -> Proved[Kernel]:
    """A kernel that the checker accepts, as if its lemmas were on record as discharged."""
    return Proved.on_record(kernel, statements(examine(kernel)[1]))


def kernel(isa: str, method: str, act_bits: int, w_bits: int) -> Kernel:
    return entry(isa, method, act_bits, w_bits).kernel
