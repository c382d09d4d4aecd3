"""The record of a solved kernel: its program, its proof, its cost, and the methods tried besides.

A `ProvedEntry` is made of a `Proved` kernel alone; an `Entry` is its text, which anyone may write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NoReturn, final

import msgspec

from bitsynth.errors import SpecError
from bitsynth.isa.load import load
from bitsynth.isa.step import from_json, to_json
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Kernel
from bitsynth.proof.proved import Proved
from bitsynth.schedule import cost
from bitsynth.schedule.cost import KernelCost
from bitsynth.schedule.price import price
from bitsynth.spec.options import KernelOptions, scope
from bitsynth.store.files import Record

FORMAT = 4


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reasons why the kernel is right for every input, and the claims on its cost.

    `lemmas` compose end to end and rest on `instructions`, the proof obligations, one Z3 lemma a use of an
    instruction form; `minimality` lists what was shown of the sketch, by UNSAT or by enumeration.
    """

    sketch: str
    k_max: int
    lemmas: tuple[str, ...]
    instructions: tuple[str, ...]
    minimality: tuple[str, ...]


class RunnerUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A method that was tried too: its kernel's cost in the entry's model, or None and why it has none."""

    method: str
    cost: float | None
    why: str


class Entry(Record, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One cached kernel of `method`, which was `asked` for or ("") the cheapest. `digest` covers everything else."""

    format: int
    name: str
    method: str
    asked: str
    model: str
    channels: int
    runners_up: tuple[RunnerUp, ...]
    kernel: Kernel
    cost: KernelCost
    certificate: Certificate
    digest: str
    k_step: int = 0

    @property
    def options(self) -> KernelOptions:
        """The options asked for; SpecError if no such options exist."""
        return KernelOptions(self.asked or None, self.certificate.sketch, self.model, self.channels, self.k_step)


@final
@dataclass(frozen=True, eq=False)
class ProvedEntry:
    """A proved kernel, and the claims made when it was solved, as `options` asked; `entry` is its text.

    Nothing is claimed of a kernel that is a form of another, `base`.
    """

    proved: Proved[Kernel]
    options: KernelOptions
    claims: tuple[str, ...]
    bound: float
    runners_up: tuple[RunnerUp, ...] = ()
    base: ProvedEntry | None = None

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("what is proved has no other kinds")

    def __post_init__(self) -> None:
        if type(self.proved) is not Proved:
            raise SpecError(f"a kernel is sealed by a proof, not by {type(self.proved).__name__}")
        if type(self.proved.artifact) is not Kernel:
            raise SpecError(f"the proof is of {type(self.proved.artifact).__name__}, not of a kernel")

    @cached_property
    def entry(self) -> Entry:
        """The text, with its digest."""
        kernel = self.proved.artifact
        core = kernel.core
        certificate = Certificate(
            self.options.sketch, core.k_max, self.proved.lemmas, self.proved.statements, self.claims
        )
        return Entry(
            format=FORMAT,
            name=str(KernelName.of(kernel, core)),
            method=kernel.method,
            asked=self.options.method or "",
            model=self.options.model,
            channels=self.options.channels,
            k_step=self.options.k_step,
            runners_up=self.runners_up,
            kernel=kernel,
            cost=self._cost(),
            certificate=certificate,
            digest="",
        ).with_digest()

    def _cost(self) -> KernelCost:
        """Return the kernel's cost.

        Minimal if it was solved for, and its steady loop meets the sketch's lower bound.
        """
        kernel, isa = self.proved.artifact, load(self.proved.artifact.isa)
        minimal = self.base is None and cost.loop_ops_per_128_mac(isa, kernel) <= self.bound
        return KernelCost(
            ops_per_128_mac=round(cost.ops_per_128_mac(isa, kernel), 4),
            lower_bound=self.bound,
            minimal=scope(isa, kernel.method, self.options) if minimal else "",
            loads_per_128_mac=round(cost.loads_per_128_mac(isa, kernel), 4),
            instructions=cost.instructions(kernel),
            cycles=price(kernel),
        )

    def form(self, kernel: Kernel) -> ProvedEntry:
        """Return the entry of another form of the kernel, derived once a process.

        SpecError if `Proved.form` refuses it.
        """
        return self if kernel == self.proved.artifact else _form(self, kernel)

    def __reduce__(self) -> tuple[Callable[..., ProvedEntry], tuple[Any, ...]]:
        """Pickle the text, which is checked again by whoever unpickles it."""
        if self.base is not None:
            return _form_of_text, (self.base, to_json(self.proved.artifact))
        from bitsynth.store.accept import accept_text

        return accept_text, (to_json(self.entry),)


@lru_cache(maxsize=1024)
def _form(base: ProvedEntry, kernel: Kernel) -> ProvedEntry:
    return ProvedEntry(base.proved.form(kernel), base.options, (), base.bound, (), base)


def _form_of_text(base: ProvedEntry, text: bytes) -> ProvedEntry:
    return base.form(from_json(text, Kernel))


def require_proved(entry: object) -> ProvedEntry:
    """Return the entry `entry`, if it is a proved one; SpecError otherwise."""
    if not isinstance(entry, ProvedEntry):
        raise SpecError(f"a kernel is made of what is proved, as `get_kernel` gives, not of {type(entry).__name__}")
    return entry
