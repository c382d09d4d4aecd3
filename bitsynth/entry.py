"""What is kept of a solved kernel: its program, why it is right, what it costs, and what else was tried.

A `ProvedEntry` is sealed from a `Proved` kernel alone; an `Entry` is its text, which anyone may write.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from bitsynth.choice import Choice, scope
from bitsynth.errors import SpecError
from bitsynth.isa.load import Isa, load
from bitsynth.names import KernelName
from bitsynth.program import Kernel
from bitsynth.proved import Proved, implied_by
from bitsynth.schedule import cost
from bitsynth.schedule.cost import Cost
from bitsynth.spec import MatmulSpec
from bitsynth.wellformed import forms_used

FORMAT = 4


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why the kernel is right for every input, and why nothing in the sketch is cheaper.

    `lemmas` compose end to end and rest on `instructions`, one Z3 lemma a use of an
    instruction form; `minimality` lists what was UNSAT below the kernel found.
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


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One cached kernel of `method`, which was `asked` for or ("") the cheapest. `digest` covers everything else."""

    format: int
    name: str
    method: str
    asked: str
    model: str
    channels: int
    runners_up: tuple[RunnerUp, ...]
    kernel: Kernel
    cost: Cost
    certificate: Certificate
    digest: str

    @property
    def sealed_digest(self) -> str:
        """The digest the other fields call for."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(self, digest=""))).hexdigest()

    @property
    def choice(self) -> Choice:
        """What was asked for; SpecError where no such choice exists."""
        return Choice(self.asked or None, self.certificate.sketch, self.model, self.channels)


@dataclass(frozen=True, eq=False)
class ProvedEntry:
    """A kernel that is proved, and its text; SpecError where the text is of another kernel or proof."""

    proved: Proved
    entry: Entry

    def __post_init__(self) -> None:
        if type(self.proved) is not Proved:
            raise SpecError(f"a kernel is sealed by a proof, not by {type(self.proved).__name__}")
        certificate, proved = self.entry.certificate, self.proved
        facts = {
            "kernel": self.entry.kernel == proved.kernel,
            "lemmas": certificate.lemmas == proved.lemmas,
            "instruction lemmas": certificate.instructions == proved.statements,
            "seal": self.entry.digest == self.entry.sealed_digest,
        }
        if wrong := [what for what, holds in facts.items() if not holds]:
            raise SpecError(f"{', '.join(wrong)} differ")

    def derived(self, kernel: Kernel) -> ProvedEntry:
        """The entry of another form of the kernel, whose obligations follow from this one's; Refuted otherwise."""
        return self if kernel == self.entry.kernel else _derived(self, kernel)


@lru_cache(maxsize=1024)
def _derived(found: ProvedEntry, kernel: Kernel) -> ProvedEntry:
    entry = found.entry
    proved = Proved(kernel, implied_by(found.proved))
    claims, bound = entry.certificate.minimality, entry.cost.lower_bound
    return seal(proved, entry.choice, entry.method, claims, bound, entry.runners_up)


def require_proved(found: object) -> ProvedEntry:
    """What was given, where that is proved; SpecError otherwise."""
    if not isinstance(found, ProvedEntry):
        raise SpecError(f"a kernel is made of what is proved, as `get_kernel` gives, not of {type(found).__name__}")
    return found


def seal(
    proved: Proved,
    choice: Choice,
    method: str,
    minimality: tuple[str, ...],
    bound: float,
    runners_up: tuple[RunnerUp, ...] = (),
) -> ProvedEntry:
    """The entry of a proved kernel of `method`, which `choice` asked for, with its cost and its digest."""
    kernel = proved.kernel
    core = core_spec(kernel)
    entry = Entry(
        format=FORMAT,
        name=str(KernelName.of(kernel, core)),
        method=method,
        asked=choice.method or "",
        model=choice.model,
        channels=choice.channels,
        runners_up=runners_up,
        kernel=kernel,
        cost=priced(kernel, choice.sketch, bound),
        certificate=Certificate(choice.sketch, core.k_max, proved.lemmas, proved.statements, minimality),
        digest="",
    )
    return ProvedEntry(proved, msgspec.structs.replace(entry, digest=entry.sealed_digest))


def core_spec(kernel: Kernel) -> MatmulSpec:
    """The plain product of the kernel's widths."""
    return MatmulSpec.plain(kernel.isa, kernel.act_bits, kernel.w_bits)


def priced(kernel: Kernel, sketch: str, bound: float) -> Cost:
    """The kernel's cost; minimal in its sketch when its steady loop meets the sketch's lower bound."""
    isa = load(kernel.isa)
    minimal = cost.loop_ops_per_128_mac(isa, kernel) <= bound
    return Cost(
        ops_per_128_mac=round(cost.ops_per_128_mac(isa, kernel), 4),
        lower_bound=bound,
        minimal=scope(isa, kernel.method, sketch) if minimal else "",
        loads_per_128_mac=round(cost.loads_per_128_mac(isa, kernel), 4),
        instructions=cost.instructions(kernel),
        cycles={cpu: round(cost.cycles_per_128_mac(isa, kernel, cpu), 4) for cpu in _able(isa, kernel)},
    )


def _able(isa: Isa, kernel: Kernel) -> list[str]:
    """The CPUs that have every instruction of the kernel."""
    used = forms_used(isa, kernel)
    return [cpu for cpu in isa.table.cpu if used <= isa.for_cpu(cpu).instrs.keys()]
