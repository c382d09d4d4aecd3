"""The kernel wanted, besides its widths: method, sketch, and the model it is to be cheap in."""

from __future__ import annotations

from dataclasses import dataclass

from bitsynth.errors import SpecError
from bitsynth.isa import cost_models
from bitsynth.isa.load import Isa, load
from bitsynth.spec.matmul import Encoding, MatmulSpec

METHODS = ("popcount", "lookup", "pairs", "multiply", "fip", "dot", "matrix")
PREDICTED = {"pairs": 1.0, "fip": 1.05}
"""Methods whose cost the throughput bound underestimates, as they trade arithmetic for loads: predicted cycles decide.

Such a kernel is taken if every other takes more than this many times its cycles; compiled, "fip" takes 3 % more.
"""
SKETCHES = ("exact", "paper")
_OWN_MODEL = {"exact": "ops", "paper": "length"}
MAX_THREADS = 256
"""Threads that a layer, or a pool of layers, may have."""
INDEX_BITS = (6, 4)
"""Positions of K a table lookup takes in at once, the most first."""
_MAX_SIZE = 1 << 20
"""Channels of a layer, and positions of K in a step, at most."""
DOT_POSITIONS = 4
"""Products that an instruction sums to count as a dot product."""


@dataclass(frozen=True)
class KernelOptions:
    """A method, or None for the cheapest of all; a sketch; a cost model, "" for the sketch's own.

    The name of a processor is a model too: its cycles, with the instructions that it has. With `channels` the kernel is
    for layers of that many output channels: its rows are activations, and a tile has no more columns than that. With
    `k_step` the kernel is a popcount kernel whose step takes that many positions of K: the more positions, the more
    bytes of a register a column has.
    """

    method: str | None = None
    sketch: str = "exact"
    model: str = ""
    channels: int = 0
    k_step: int = 0

    def __post_init__(self) -> None:
        for what, value, known in (("method", self.method, (None, *METHODS)), ("sketch", self.sketch, SKETCHES)):
            if value not in known:
                raise SpecError(f"unknown {what} {value!r}; known: {', '.join(x for x in known if x)}")
        for what, number in (("channels", self.channels), ("k_step", self.k_step)):
            if type(number) is not int or not 0 <= number <= _MAX_SIZE:
                raise SpecError(
                    f"{what} must be a whole number up to {_MAX_SIZE:,}, 0 for any, not {str(number)[:40]!r}"
                )
        if self.channels and self.sketch != "exact":
            raise SpecError(f"channels are of the exact sketch: {self.channels}")
        if self.k_step and self.method != "popcount":
            raise SpecError(f"k_step asks for popcount: {self.k_step}")
        if self.k_step and self.sketch != "exact":
            raise SpecError("k_step is of the exact sketch: the paper's steps take as many positions as they do")
        own = _OWN_MODEL[self.sketch]
        if self.sketch == "paper" and (self.model not in ("", own) or self.method not in (None, "popcount")):
            raise SpecError(f"the paper's sketch counts bits and minimizes {own}; leave out the method and the cost")
        object.__setattr__(self, "model", self.model or own)

    @property
    def variant(self) -> str:
        """The sub-folder of its kernels in the cache; "" for the default options."""
        sketch = self.sketch if self.sketch != "exact" else ""
        method = (self.method or "") if self.sketch == "exact" else ""
        model = self.model if self.model != _OWN_MODEL["exact"] else ""
        channels = f"c{self.channels}" if self.channels else ""
        steps = f"k{self.k_step}" if self.k_step else ""
        return "-".join(part for part in (method, sketch, model, channels, steps) if part)

    def isa(self, name: str) -> Isa:
        """Return the instruction set `name`, as far as the processor has it; SpecError for a model it does not know."""
        cost_models.metric(name, self.model)
        isa = load(name)
        return isa.for_cpu(self.model) if self.model in isa.table.cpu else isa


def synth_command(spec: MatmulSpec, options: KernelOptions) -> str:
    """Return the command that solves, proves and stores the kernel that `options` ask for."""
    usual = {"act-encoding": Encoding.UNSIGNED, "weight-encoding": Encoding.BIPOLAR, "sketch": "exact", "cost": "ops"}
    by_cpu = options.model not in cost_models.COUNTS
    asked = {
        "isa": spec.isa,
        "act-bits": spec.act.bits,
        "w-bits": spec.wgt.bits,
        "act-encoding": spec.act.encoding,
        "weight-encoding": spec.wgt.encoding,
        "method": options.method,
        "cpu" if by_cpu else "cost": "" if options.model == _OWN_MODEL[options.sketch] else options.model,
        "channels": options.channels,
        "k-step": options.k_step,
        "sketch": options.sketch,
    }
    given = (f" --{name} {value}" for name, value in asked.items() if value and value != usual.get(name))
    return f"bitsynth synth{''.join(given)}"


def model_of(isa: Isa, cpu: str, cost: str = "") -> str:
    """Return the model asked for by a processor or by what to count, "" by neither.

    SpecError for both, or unknown ones.
    """
    if cpu and cost:
        raise SpecError(f"--cpu {cpu} minimizes its cycles; leave out --cost")
    if cpu:
        isa.for_cpu(cpu)
    if cost and cost not in cost_models.COUNTS:
        known = " or ".join(cost_models.COUNTS)
        raise SpecError(f"--cost is {known}, not {cost!r}; for the cycles of a processor use --cpu")
    return cpu or cost


def scope(isa: Isa, method: str, options: KernelOptions) -> str:
    """Return the kernels that a claim of minimality covers: the sketch of `method`, solved with `options`."""
    if options.sketch == "paper":
        return "shortest program for a plane pair in the paper's instruction list"
    rows = f", rows of activations, at most {options.channels} columns" if options.channels else ""
    steps = f", steps of {options.k_step} positions" if options.k_step else ""
    cpu = f", on {options.model}" if options.model in isa.table.cpu else ""
    return _sketch(isa, method) + rows + steps + cpu


def _sketch(isa: Isa, method: str) -> str:
    match method:
        case "popcount":
            return "fewest popcounts and gates on one bit position"
        case "lookup" | "pairs":
            most = next(bits for bits in INDEX_BITS if 1 << bits <= isa.word.lanes)
            rows = ", of two rows at once" if method == "pairs" else ""
            return f"least steady loop of lookup sketches with at most {most} positions{rows}"
        case "dot":
            return f"least steady loop of sketches whose instruction sums {DOT_POSITIONS} products"
        case "matrix":
            return "least steady loop of sketches whose instruction multiplies matrices of bytes"
        case "fip":
            return "least steady loop of sketches whose instruction multiplies sums of two bytes"
        case _:
            return "least steady loop of sketches whose instruction multiplies bytes"
