"""The paper's 8x8 by 8x1 kernel of 1-bit values (CGO 2020, Figure 6) in AArch64 instructions.

    python benchmarks/paper_8x8.py [--json]

Eight rows of 64 bits, one vector of 64 bits, 16-bit sums: the step of the cached A1W1
kernel for one row of activations, rendered from its program. As in the paper, operands are
in registers, the sums are stored, and the return is not counted. Executed instructions are counted under emulation, and
sums are compared with numpy's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import report
from forced import forced

import bitsynth
from bitsynth import toolchain
from bitsynth.emit.statements import Scope
from bitsynth.errors import Refuted, SpecError, ToolError
from bitsynth.host import features
from bitsynth.isa.load import Isa, load
from bitsynth.isa.types import VecType
from bitsynth.kernel.program import Kernel
from bitsynth.run.runner import Runner, runner_for
from bitsynth.toolchain.compiler import Compiler

ISA, SYMBOL = "neon", "bs_8x8"
TARGET, PAPER, TVM = 13, 24, 49
COLUMNS, WORD_BYTES = 8, 8
DISASSEMBLERS = ("aarch64-linux-gnu-objdump", "llvm-objdump", *(["objdump"] if features.arch() == "aarch64" else []))


@dataclass(frozen=True)
class Count:
    """The counts of the kernel as a compiler compiled it."""

    compiler: str
    executed: int
    listing: tuple[str, ...]

    @property
    def met(self) -> bool:
        """Whether no more instructions are executed than the target."""
        return self.executed <= TARGET


def source(isa: Isa, kernel: Kernel) -> str:
    """C of the step, of a function that returns at once, and of one that loads operands and calls either."""
    (loop,) = kernel.passes
    (acc,) = loop.step.accs
    if kernel.columns != COLUMNS or VecType.parse(acc.type).bits != 16:
        raise SpecError(f"{ISA} A1W1 has {kernel.columns} columns and {acc.type} sums; wants {COLUMNS} of 16 bits")
    kinds = {f"w{g}_0": isa.word for g in range(COLUMNS * WORD_BYTES // isa.word.lanes)}
    kinds |= {"a0": isa.word, acc.name: VecType.parse(acc.type)}
    moves = {f"store.{acc.type}", *(f"load.{kind:v}" for kind in kinds.values())}
    scope = Scope(isa, {*kernel.forms, *moves}, dict(kinds))
    parameters = ", ".join(["uint16_t *out", *(f"{scope.ctype(kind)} {name}" for name, kind in kinds.items())])
    body = [*scope.steps(loop.step.steps), scope.store(f"store.{acc.type}", acc.next, "out")]
    loads = [scope.load(f"load.{kinds[n]:v}", f"in_{n}", _place(isa, n)) for n in kinds]
    inputs = ", ".join(["out", *(f"in_{n}" for n in kinds)])
    return "\n".join(
        [
            f"#include <{isa.table.header}>",
            *scope.macros.values(),
            f"void {SYMBOL}({parameters});",
            f"void {SYMBOL}({parameters})\n{{",
            *(f"    {line}" for line in body),
            "}",
            f"typedef void kernel({parameters});",
            f"static void nothing({parameters})\n{{",
            *(f"    (void){name};" for name in ("out", *kinds)),
            "}",
            f"static kernel *const volatile choice[] = {{nothing, {SYMBOL}}};",
            "void run(uint64_t which, const uint8_t *w, const uint8_t *a, const uint16_t *sums, uint16_t *out);",
            "void run(uint64_t which, const uint8_t *w, const uint8_t *a, const uint16_t *sums, uint16_t *out)\n{",
            *(f"    {line}" for line in loads),
            f"    choice[which]({inputs});",
            "}\n",
        ]
    )


def _place(isa: Isa, name: str) -> str:
    if name.startswith("w"):
        return f"w + {isa.word.lanes * int(name[1 : name.index('_')])}"
    return "a" if name == "a0" else "sums"


def count(isa: Isa, kernel: Kernel, compiler: Compiler) -> Count:
    """Check the sums, then count: a call of the kernel less a call of a function that only returns."""
    text = source(isa, kernel)
    with forced("unicorn"):  # It counts.
        library = toolchain.compile_for(isa, {"paper_8x8.c": text}, compiler=compiler)
        runner = runner_for(isa, library, count=True)
        check(runner, kernel)
        executed = executed_by(runner, 1) - executed_by(runner, 0)
        runner.close()
    return Count(f"{compiler.name}: {compiler.version}", executed, tuple(listing(isa, compiler, library, text)))


def executed_by(runner: Runner, which: int) -> int:
    operands = [np.zeros(n, np.uint8) for n in (COLUMNS * WORD_BYTES, 2 * WORD_BYTES)]
    sums = [np.zeros(COLUMNS, np.uint16) for _ in range(2)]
    runner.call("run", which, *operands, *sums)
    if runner.instructions is None:
        raise ToolError(f"instructions are not counted {runner.description}")
    return runner.instructions


def check(runner: Runner, kernel: Kernel) -> None:
    """Sums of unequal bits, added to what was there, equal numpy's; Refuted if not."""
    rng = np.random.default_rng(0)
    for fill in (0, 255, None):
        w = rng.integers(0, 256, (COLUMNS, WORD_BYTES), np.uint8) if fill is None else np.full((8, 8), fill, np.uint8)
        a = rng.integers(0, 256, WORD_BYTES, np.uint8) * np.uint8(fill != 255)
        before = rng.integers(0, 1000, COLUMNS).astype(np.uint16)
        got = np.zeros(COLUMNS, np.uint16)
        runner.call("run", 1, np.ascontiguousarray(w[list(kernel.slots)]), np.tile(a, 2), before, got)
        want = before + np.bitwise_count(w ^ a).sum(1)
        if not np.array_equal(got, want):
            raise Refuted(f"w {w.tolist()}, a {a.tolist()}, sums {before.tolist()}: got {got}, want {want}")


def listing(isa: Isa, compiler: Compiler, library: Path, text: str) -> list[str]:
    """Instructions of the kernel: disassembled, or as the compiler writes them where there is no disassembler."""
    tool = next(filter(None, map(shutil.which, DISASSEMBLERS)), None)
    if tool:
        raw = run_command([tool, "-d", "--no-show-raw-insn", str(library)])
        body = re.search(rf"<{SYMBOL}>:\n((?:.+\n)+)", raw)
        lines = [line.partition(":")[2] for line in body[1].splitlines()] if body else []
    else:
        lines = written(isa, compiler, text)
    plain = [re.sub(r"\s+", " ", line.partition("//")[0]).strip() for line in lines]
    return plain[: plain.index("ret") + 1] if "ret" in plain else plain


def written(isa: Isa, compiler: Compiler, text: str) -> list[str]:
    """The compiler's own assembly text of the kernel."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "paper_8x8.c")
        path.write_text(text, encoding="utf-8")
        flags = compiler.flags(isa.table.cc_flags)
        run_command(
            [*compiler.command, "-O2", "-fPIC", *flags, "-S", str(path), "-o", f"{path}.s"], compiler.environment
        )
        body = re.search(
            rf"^{SYMBOL}:.*?\n(.*?)^\s*\.size", Path(f"{path}.s").read_text("utf-8"), re.DOTALL | re.MULTILINE
        )
    return [line for line in (body[1] if body else "").splitlines() if re.match(r"\s+[a-z]", line)]


def run_command(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if done.returncode:
        raise ToolError(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout


def counts() -> list[Count]:
    """One count a compiler."""
    isa = load(ISA)
    kernel = bitsynth.get_kernel(ISA, 1, 1).entry.kernel
    compilers = toolchain.compilers(isa)
    if not compilers:
        raise ToolError("no compiler for AArch64: `bitsynth doctor` says what to install")
    return [count(isa, kernel, compiler) for compiler in compilers]


def main() -> int:
    parser = report.parser(__doc__)
    given = parser.parse_args()
    found, setting = counts(), report.setting("neon")
    if given.json:
        print(json.dumps({"setting": setting, "target": TARGET, "counts": [asdict(c) for c in found]}, indent=1))
        return 0
    print(report.heading(setting), "\n")
    for c in found:
        print(f"{c.compiler}\n" + "\n".join(f"    {line}" for line in c.listing))
        print(f"{c.executed} instructions executed, the return apart; at most {TARGET}: {report.yes(c.met)}")
        print(f"paper {PAPER}, TVM {TVM}\n")
    return 0


if __name__ == "__main__":
    report.run(main)
