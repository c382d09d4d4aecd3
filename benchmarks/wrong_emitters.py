"""Changes templates, emitters and runtimes: does the proof refuse each whose C computes something else?

    python benchmarks/wrong_emitters.py [--count 30] [--seed 2026] [--json] [SUBJECT ...]

A subject is a kernel, or `network`, which is eleven layers whose runtime moves codes in different ways. A change is of
one line of a template, of one expression or statement of the Python that writes C, or of one line of the runtime; or it
replaces an instruction by another one. Changes are drawn by seed, all kinds in turn, until `--count` of a subject
compile and change the part of its C that is proved. Each is compiled by gcc with -O2. Results and writes of its
functions, for random and extreme inputs, are compared with the unchanged functions'; code of AArch64 runs under
unicorn. Then the proof judges the functions that differ, or all if none does: the microkernel for all sizes, packers
for listed sizes, layers for their shapes. A microkernel that the loop rule does not apply to is proved for listed sizes
alone, and may be wrong at others. Exit code 1 if a function that computes something else is proved, or an unchanged one
is not.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

import report
from emitter_changes import KINDS, PARTS, Change
from emitter_subjects import (
    CHECKS,
    EMIT_SECONDS,
    MEMORY,
    PROVE_SECONDS,
    FunctionProof,
    KernelSubject,
    NetworkSubject,
    Subject,
    digest_of,
    run_in_process,
)

from bitsynth.bench.setting import Basis
from bitsynth.cli import output
from bitsynth.progress import Progress

NETWORK = "network"
SUBJECTS = (
    "bs_mm_a4u_w4b_s32_avx2_8x16x4",
    "bs_mm_a2u_w1b_s32_avx2_3x64x4",
    "bs_mm_a1u_w1b_s32_avx512_12x32x64",
    "bs_mm_a8u_w8s_s32_neon_dotprod_6x16x16",
    NETWORK,
)
MOST_DRAWN = 60
"""The most changes that are drawn for each that is counted."""
FAULT = "WRONG: proved"
VERDICTS = ("refused", "not understood", "listed sizes alone", FAULT)
"""Verdicts on C that computes something else."""
WORST_FIRST = ("proved", "listed sizes alone", "not understood", "refused")
"""Verdicts on a function that computes something else; for one that computes the same, the best ones."""


@dataclass(frozen=True)
class Outcome:
    """A change that compiles, which functions differ, and the verdict on them.

    Attributes:
        part: What is changed: one of PARTS.
        kind: How: one of KINDS; "none" of the unchanged emitters.
        verdict: One of VERDICTS if functions differ, else what is shown of all of them.
        check: The proof that gave the verdict on functions that differ: one of CHECKS.
        why: The reason of the verdict.
    """

    subject: str
    part: str
    kind: str
    change: str
    differs: tuple[str, ...]
    verdict: str
    check: str
    why: str


class ChangeJudge:
    """Judges changes of a subject, from the unchanged C and the results and writes of its functions."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self._subject, self._folder = subject, folder
        self._files = subject.emit()
        self.built = self._compile(self._files)
        assert self.built
        self._right = self._run(self.built)
        assert all(self._right.values()), self._right

    def _compile(self, files: dict[str, str]) -> Path | None:
        return self._subject.compile(files, Path(tempfile.mkdtemp(dir=self._folder)))

    def _run(self, built: Path) -> dict[str, str | None]:
        """Return digests of functions' results and writes; None for functions that crash or do not end."""
        of = self._subject
        return {x: run_in_process(partial(digest_of, of, built, x), of.seconds) for x in of.functions}

    def prove(self, built: Path, functions: Sequence[str]) -> dict[str, FunctionProof]:
        """Return what is shown of functions."""
        shown = run_in_process(partial(self._subject.prove, built, functions), PROVE_SECONDS, MEMORY)
        gave_up = FunctionProof("not understood", f"no verdict in {PROVE_SECONDS} seconds")
        return shown if shown is not None else dict.fromkeys(functions, gave_up)

    def emit(self, change: Change) -> dict[str, str] | None:
        """Return the C that a changed emitter writes; None if it writes none, or nothing else where it is proved."""

        def emit_changed() -> dict[str, str]:
            change.make()
            return self._subject.emit()

        files = run_in_process(emit_changed, EMIT_SECONDS, MEMORY)
        if not files or {*files} != {*self._files}:
            return None
        return None if self._subject.select_covered(files) == self._subject.select_covered(self._files) else files

    def judge(self, change: Change, files: dict[str, str]) -> Outcome | None:
        """Return the verdict on what a changed emitter wrote; None if that does not compile."""
        built = self._compile(files)
        if built is None:
            return None
        results = self._run(built)
        differs = tuple(x for x in self._subject.functions if results[x] is None or results[x] != self._right[x])
        return self._judge(built, differs, (change.part, change.kind, str(change)))

    def judge_unchanged(self) -> Outcome:
        """Return the verdict on what the emitters write as they are."""
        assert self.built
        return self._judge(self.built, (), ("", "none", ""))

    def _judge(self, built: Path, differs: tuple[str, ...], change: tuple[str, str, str]) -> Outcome:
        """Return the verdict on functions that differ, or else on all: the worst one."""
        shown = self.prove(built, differs or self._subject.functions)
        worst_first = WORST_FIRST if differs else WORST_FIRST[::-1]
        function = min(shown, key=lambda x: worst_first.index(shown[x].verdict))
        proof = shown[function]
        verdict = FAULT if differs and proof.verdict == "proved" else proof.verdict
        check = self._subject.check_of(function) if differs else ""
        return Outcome(self._subject.name, *change, differs, verdict, check, proof.why)


def draw(changes: Sequence[Change], rng: random.Random) -> Iterator[Change]:
    """Yield changes in random order, all kinds in turn."""
    by_kind = {kind: [x for x in changes if x.kind == kind] for kind in KINDS}
    for pool in by_kind.values():
        rng.shuffle(pool)
    while any(by_kind.values()):
        for pool in by_kind.values():
            if pool:
                yield pool.pop()


def judge_changes(subject: Subject, count: int, seed: int, folder: Path, say: Progress) -> Iterator[Outcome]:
    """Yield the outcomes of changes of a subject's emitters, after the outcome of the unchanged emitters."""
    judge = ChangeJudge(subject, folder)
    yield judge.judge_unchanged()
    named = subject.named_changes()
    found, wanted, rng = 0, len(named) + count, random.Random(f"{seed} {subject.name}")
    tried = islice(chain(named, draw(subject.changes(), rng)), MOST_DRAWN * wanted)
    for change in tried:
        if found == wanted:
            return
        files = judge.emit(change)
        outcome = judge.judge(change, files) if files else None
        if outcome:
            found += 1
            say(f"{subject.name}: {change.kind}", found, wanted)
            yield outcome


def count_verdicts(
    outcomes: Sequence[Outcome], title: str, field: str, names: Sequence[str]
) -> tuple[list[str], list[list[object]]]:
    """Return titles and rows of counts of changes, by a field of outcomes.

    A row counts by verdict the changes after which something else is computed; and, proved or not, the changes after
    which the same is computed (=).
    """
    of_changes = [x for x in outcomes if x.kind != "none"]
    rows: list[list[object]] = []
    for name in (*names, "all"):
        own = [x for x in of_changes if name in {"all", getattr(x, field)}]
        wrong = Counter(x.verdict for x in own if x.differs)
        same = Counter(x.verdict == "proved" for x in own if not x.differs)
        rows.append([name, *(wrong[x] for x in VERDICTS), same[True], same[False]])
    return [title, "refused", "not underst.", "listed", "proved", "= proved", "= not"], rows


def main() -> int:
    """Print how many changed emitters of each kind are refused."""
    parser = report.parser(__doc__)
    parser.add_argument("subjects", nargs="*", default=SUBJECTS)
    parser.add_argument("--count", type=int, default=30, help="changes of each subject")
    parser.add_argument("--seed", type=int, default=2026)
    given = parser.parse_args()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder, output.progress("wrong emitters") as say:
        for name in given.subjects:
            own = Path(tempfile.mkdtemp(dir=folder))
            subject = NetworkSubject("avx2", own) if name == NETWORK else KernelSubject(name)
            for outcome in judge_changes(subject, given.count, given.seed, own, say):
                outcomes.append(outcome)
    unchanged = [x for x in outcomes if x.kind == "none"]
    faults = [x for x in outcomes if x.verdict == FAULT] + [x for x in unchanged if x.verdict != "proved"]
    facts = report.facts(Basis(), outcomes=[asdict(x) for x in outcomes])
    by = {"changed part": ("part", PARTS), "kind of change": ("kind", KINDS), "judged by": ("check", CHECKS)}
    report.tell(facts, *(count_verdicts(outcomes, title, *of) for title, of in by.items()), as_json=given.json)
    for fault in faults:
        print(f"WRONG: {fault.subject}: {fault.change or 'unchanged'}: {fault.differs}: {fault.why}", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    report.run(main)
