"""Solved kernels as text: one JSON file a kernel, a user's folder over the shipped one.

A file holds the program, its certificate and its cost; never C, never a pickle. Whatever
is read is checked again (`load_entry`) before C is rendered from it.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache as memoize
from functools import partial
from pathlib import Path

import msgspec

from bitsynth import paths, verify
from bitsynth.choice import METHODS, Choice
from bitsynth.errors import BitsynthError, Refuted, SpecError, ToolError
from bitsynth.files import ADVICE, locked, read_file, replace_file, unwritable
from bitsynth.isa.load import Isa, load
from bitsynth.names import KernelName
from bitsynth.program import Kernel
from bitsynth.schedule import cost
from bitsynth.schedule.cost import Cost
from bitsynth.spec import Encoding, MatmulSpec, Operand
from bitsynth.uses import Recorder, Use
from bitsynth.wellformed import forms_used

FORMAT = 3
MOST_REASON = 1000


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

    def sealed(self) -> Entry:
        """The entry with its digest."""
        return msgspec.structs.replace(self, digest=self.sealed_digest)

    @property
    def choice(self) -> Choice:
        """What was asked for; SpecError where no such choice exists."""
        return Choice(self.asked or None, self.certificate.sketch, self.model, self.channels)


def user_folder() -> Path:
    """BITSYNTH_CACHE, else the platform's cache folder."""
    if chosen := os.environ.get("BITSYNTH_CACHE"):
        return Path(chosen)
    return paths.user_cache() / "kernels"


def folders() -> list[Path]:
    """Where kernels are looked for: the user's first."""
    return [user_folder(), paths.shipped_kernels()]


def find(spec: MatmulSpec, variant: str) -> Path | None:
    """The file of the kernel of `variant` (`Choice.variant`) for `spec`'s widths, None where it is not cached."""
    core = spec.core
    pattern = f"bs_mm_a{core.act.bits}u_w{core.wgt.bits}b_s32_{core.isa}_*.json"
    return next((p for folder in folders() for p in _files(folder / core.isa / variant, pattern)), None)


def named(name: str) -> Path:
    """The file of the kernel called `name`, whatever its encodings; SpecError if there is none."""
    wanted = KernelName.parse(name)
    core = replace(wanted, spec=wanted.spec.core)
    for folder in folders():
        for where in (folder / core.spec.isa, *_subfolders(folder / core.spec.isa)):
            if (path := where / f"{core}.json").is_file():
                return path
    raise SpecError(f"no kernel {name} in the cache; `bitsynth list` shows what there is, `bitsynth synth` makes one")


def every() -> Iterator[Path]:
    """All cached files, the user's over the shipped ones of the same place and name."""
    seen: set[Path] = set()
    for folder in folders():
        for path in sorted(folder.glob("*/**/bs_mm_*.json")):
            if (place := path.relative_to(folder)) not in seen:
                seen.add(place)
                yield path


def _files(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError as error:
        raise ToolError(f"cannot read {folder}: {error.strerror or error}; {ADVICE}") from None


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*") if p.is_dir())


def make_entry(
    kernel: Kernel,
    spec: MatmulSpec,
    choice: Choice,
    method: str,
    minimality: tuple[str, ...],
    bound: float,
    runners_up: tuple[RunnerUp, ...] = (),
) -> tuple[Entry, set[Use]]:
    """A checked and sealed entry, and the instruction uses `prove` must discharge for it."""
    lemmas, uses = examine(kernel)
    entry = Entry(
        format=FORMAT,
        name=str(KernelName.of(kernel, spec.core)),
        method=method,
        asked=choice.method or "",
        model=choice.model,
        channels=choice.channels,
        runners_up=runners_up,
        kernel=kernel,
        cost=priced(kernel, bound),
        certificate=Certificate(choice.sketch, spec.core.k_max, lemmas, _statements(uses), minimality),
        digest="",
    )
    return entry.sealed(), uses


def remade(entry: Entry, kernel: Kernel) -> Entry:
    """The entry of another form of its kernel, checked and sealed anew."""
    spec = MatmulSpec(kernel.isa, *_operands(kernel))
    claims, bound = entry.certificate.minimality, entry.cost.lower_bound
    return make_entry(kernel, spec, entry.choice, entry.method, claims, bound, entry.runners_up)[0]


def examine(kernel: Kernel) -> tuple[tuple[str, ...], set[Use]]:
    """Run the checker: the lemmas, and the instruction uses they rest on."""
    uses: set[Use] = set()
    checked = verify.check(kernel, lambda isa, domain: Recorder(isa, domain, seen=uses))
    return checked.lemmas, uses


def _statements(uses: set[Use]) -> tuple[str, ...]:
    return tuple(sorted(u.statement for u in uses))


def priced(kernel: Kernel, bound: float) -> Cost:
    """The kernel's cost; minimal when its steady loop meets the sketch's lower bound."""
    isa = load(kernel.isa)
    return Cost(
        ops_per_128_mac=round(cost.ops_per_128_mac(isa, kernel), 4),
        lower_bound=bound,
        minimal=cost.loop_ops_per_128_mac(isa, kernel) <= bound,
        loads_per_128_mac=round(cost.loads_per_128_mac(isa, kernel), 4),
        instructions=cost.instructions(kernel),
        cycles={cpu: round(cost.cycles_per_128_mac(isa, kernel, cpu), 4) for cpu in _able(isa, kernel)},
    )


def _able(isa: Isa, kernel: Kernel) -> list[str]:
    """The CPUs that have every instruction of the kernel."""
    used = forms_used(isa, kernel)
    return [cpu for cpu in isa.table.cpu if used <= isa.for_cpu(cpu).instrs.keys()]


def read_entry(path: Path) -> Entry:
    """Decode a file and check its seal; SpecError says what is wrong and what to do."""
    try:
        entry = msgspec.json.decode(read_file(path), type=Entry)
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"{path} is not a kernel of this version ({error}); {_REMEDY}") from None
    if entry.format != FORMAT:
        raise SpecError(f"{path} has format {entry.format}, this version reads {FORMAT}; {_REMEDY}")
    if entry.digest != entry.sealed_digest:
        raise SpecError(f"{path} was edited or damaged: its digest does not match; {_REMEDY}")
    return entry


_REMEDY = "delete it, or run `bitsynth synth --fresh` for its configuration"


@memoize
def load_entry(path: Path) -> Entry:
    """The entry in `path`, its certificate checked again; SpecError where it does not hold."""
    entry = read_entry(path)
    try:
        core = MatmulSpec(entry.kernel.isa, *_operands(entry.kernel))
        entry.choice.isa(core.isa)
        lemmas, uses = examine(entry.kernel)
    except BitsynthError as why:
        raise SpecError(f"{path}: the certificate does not check: {_because(entry.kernel, why)}; {_REMEDY}") from None
    facts = {
        "method": entry.method == entry.kernel.method and entry.asked in ("", entry.method),
        "channels": not entry.channels or (not entry.kernel.swapped and entry.kernel.columns <= entry.channels),
        "runners-up": all(_plausible(x, entry.method) for x in entry.runners_up),
        "sketch and cost model": path.parent.name == (entry.choice.variant or core.isa),
        "minimality claims": all(c.isprintable() for c in entry.certificate.minimality),
        "lower bound": 0 <= entry.cost.lower_bound <= entry.cost.ops_per_128_mac,
        "name": entry.name == path.stem == str(KernelName.of(entry.kernel, core)),
        "lemmas": lemmas == entry.certificate.lemmas,
        "instruction lemmas": _statements(uses) == entry.certificate.instructions,
        "largest K": entry.certificate.k_max == core.k_max,
        "cost": priced(entry.kernel, entry.cost.lower_bound) == entry.cost,
    }
    if wrong := [what for what, holds in facts.items() if not holds]:
        raise SpecError(f"{path}: the certificate does not check: {', '.join(wrong)} differ; {_REMEDY}")
    return entry


def _plausible(rival: RunnerUp, winner: str) -> bool:
    """Whether it is another method, with a cost or with a reason of one line."""
    if rival.method not in METHODS or rival.method == winner:
        return False
    if rival.cost is not None:
        return 0 <= rival.cost < math.inf and not rival.why
    return bool(rival.why) and rival.why.isprintable() and len(rival.why) < MOST_REASON


def _because(kernel: Kernel, why: BitsynthError) -> str:
    """Why the checker refuses a kernel, with an input it is wrong on where one is found."""
    if not isinstance(why, Refuted):
        return str(why)
    from bitsynth import simulate

    return f"{why}; {' '.join(simulate.evidence(kernel).split())}"


def _operands(kernel: Kernel) -> tuple[Operand, Operand]:
    return Operand(kernel.act_bits, Encoding.UNSIGNED), Operand(kernel.w_bits, Encoding.BIPOLAR)


def store(entry: Entry) -> Path:
    """Write the entry to the user's folder, in one step: readers see the old file or the new one.

    Files of the same widths with another tile go: one process at a time, or two would remove each other's.
    """
    folder = user_folder() / entry.kernel.isa / entry.choice.variant
    path = folder / f"{entry.name}.json"
    with locked(user_folder() / "locks" / f"{entry.kernel.isa}.lock", partial(unwritable, path)):
        replace_file(path, msgspec.json.format(msgspec.json.encode(entry), indent=1) + b"\n")
        for old in _files(folder, f"{entry.name.rsplit('_', 1)[0]}_*.json"):
            if old != path:
                old.unlink(missing_ok=True)
    load_entry.cache_clear()
    return path
