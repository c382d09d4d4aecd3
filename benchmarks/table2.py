"""CGO 2020's Table 2, like for like: its sketch run here, and its seconds compared with ours.

    python benchmarks/table2.py [--json] [--only A2W1]

The paper's figures are its own machine's and Rosette's; ours are this machine's and Z3's,
cold, one core. `exact` is bitsynth's default sketch for the same configuration, which tries every method;
`scheduling` chooses the default schedules of all eleven layers of ResNet-18.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

import report

from bitsynth.bench.resnet18 import LAYERS, ResNetLayer
from bitsynth.layers.planning import default_schedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.sketches.reduction import plan
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.options import KernelOptions
from bitsynth.store.matmul import MATMUL
from bitsynth.synth.synthesize import Synthesis, forget, synthesize

PAPER = {
    (1, 1): (2.4, 9.0, 5.8, 17.2, 5),
    (2, 1): (21.0, 13.9, 10.6, 45.5, 12),
    (1, 2): (62.2, 12.7, 15.2, 90.1, 12),
    (3, 1): (62.2, 18.9, 15.2, 158.3, None),
    (1, 3): (63.8, 32.1, 15.4, 109.7, None),
    (2, 2): (90.4, 52.4, 15.5, 158.3, 26),
}
"""Seconds: compute, reduction, verify, total as printed; compute instructions per 128 MAC where printed."""


@dataclass(frozen=True)
class Row:
    """One configuration: seconds here and in the paper, operations per 128 MAC."""

    config: str
    compute: float
    reduction: float
    verify: float
    total: float
    paper_total: float
    ops: float
    exact_total: float
    exact_ops: float
    scheduling: float


def cold(spec: MatmulSpec, options: KernelOptions) -> Synthesis:
    """A synthesis that reuses nothing from the ones before."""
    forget()
    plan.plan.cache_clear()
    return synthesize(spec, options)


def schedule_seconds(spec: MatmulSpec, layer: ResNetLayer) -> float:
    """Seconds of choosing the layer's default schedule, certificates of its kernels checked again."""
    MATMUL.forget()
    start = time.perf_counter()
    default_schedule(LayerSpec(spec.act, spec.wgt, layer.geometry, image=layer.image), spec.isa)
    return time.perf_counter() - start


def measure(act_bits: int, w_bits: int) -> Row:
    """Both sketches, cold."""
    spec = MatmulSpec.plain("neon", act_bits, w_bits)
    paper, exact = cold(spec, KernelOptions(sketch="paper")), cold(spec, KernelOptions())
    compute, reduction, verify = (stage.seconds for stage in paper.stages)
    return Row(
        f"A{act_bits}W{w_bits}",
        compute,
        reduction,
        verify,
        paper.seconds,
        PAPER[act_bits, w_bits][3],
        paper.entry.cost.ops_per_128_mac,
        exact.seconds,
        exact.entry.cost.ops_per_128_mac,
        sum(schedule_seconds(spec, layer) for layer in LAYERS),
    )


TITLES = ("config", "compute", "reduction", "verify", "total", "paper", "ops", "exact total", "exact ops", "scheduling")


def cells(r: Row) -> list[str]:
    """One printed row."""
    figures = (
        r.compute,
        r.reduction,
        r.verify,
        r.total,
        r.paper_total,
        r.ops,
        r.exact_total,
        r.exact_ops,
        r.scheduling,
    )
    return [r.config, *(f"{x:.2f}" for x in figures)]


def main() -> int:
    """Measure and print."""
    parser = report.parser(__doc__)
    parser.add_argument("--only", choices=[f"A{a}W{w}" for a, w in PAPER], help="one configuration")
    args = parser.parse_args()
    rows = [measure(*bits) for bits in PAPER if args.only in (None, "A{}W{}".format(*bits))]
    if args.json:
        print(json.dumps({"setting": report.setting(), "rows": [asdict(r) for r in rows]}))
        return 0
    print(report.heading(report.setting()), end="\n\n")
    print(report.columns(TITLES, [cells(r) for r in rows]))
    print("\nseconds; ops: NEON operations per 128 multiply-accumulates, compute and reduction")
    print("The paper's A3W1 parts sum to 96.3 s and its A1W3 parts to 111.3 s, not to the totals it prints.")
    return 0


if __name__ == "__main__":
    report.run(main)
