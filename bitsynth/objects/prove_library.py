"""Proves the machine code of several kernels of a library, in as many processes as there are cores.

As a worker, `python -m bitsynth.objects.prove_library`, it reads a `KernelJob` from each line of its input, pickled in
base64, and answers with a line of JSON, an `_Answer`. It ends with its input.
"""

from __future__ import annotations

import base64
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from bitsynth.errors import Refuted, SpecError, ToolError
from bitsynth.host import features
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.depthwise import DepthwiseFunction, DepthwiseSizes, depthwise_sizes, prove_depthwise
from bitsynth.objects.functions import FunctionVerdict
from bitsynth.objects.packers import prove_packers
from bitsynth.objects.prove import prove_object
from bitsynth.processes.worker import WorkerEnded, answers, command_of, take_stdout
from bitsynth.progress import Progress

COMMAND = command_of("bitsynth.objects.prove_library")


@dataclass(frozen=True)
class KernelJob:
    """A kernel whose machine code is to be proved: the name of its function, and the object that has it.

    Attributes:
        sizes: Sizes with which layers call a depthwise kernel: it is proved for these too.
    """

    kernel: MatmulKernel | DepthwiseFunction
    function: str
    path: Path
    object: str
    sizes: tuple[DepthwiseSizes, ...] = ()

    @property
    def work(self) -> int:
        """How long the proof takes, compared with others: kernels of several passes take longest."""
        return len(self.kernel.entry.kernel.passes) if isinstance(self.kernel, MatmulKernel) else 0


class PackerVerdict(msgspec.Struct, frozen=True):
    """What was shown of a packer of a kernel: for how many calls it computes what is declared.

    `why` says why it is not proved; it is "" if it is.
    """

    function: str
    calls: int
    why: str = ""


class KernelVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was shown of the machine code of a kernel.

    Attributes:
        kernel: The kernel.
        function: Its function in the library.
        object: The object that has it; "" if none was looked for.
        verdict: For which sizes it is proved; or "refused", as it is wrong or not understood; or "cannot be proved", as
            no object of such a kernel can.
        why: Why it is not proved, or not for all sizes.
        sizes: How many sizes were run.
        functions: Name, address in the object and bytes of the functions that were proved, packers included.
        packers: What was shown of the kernel's packers.
        seconds: The CPU time of the proof.
    """

    kernel: str
    function: str
    object: str = ""
    verdict: Literal["all sizes", "listed sizes", "refused", "cannot be proved"]
    why: str = ""
    sizes: int = 0
    functions: list[tuple[str, int, int]] = []
    packers: list[PackerVerdict] = []
    seconds: float = 0.0

    @property
    def is_proved(self) -> bool:
        """Whether the code of the microkernel was proved, for all sizes or for some."""
        return self.verdict in {"all sizes", "listed sizes"}


class _Answer(msgspec.Struct, frozen=True):
    """The answer of a process: a verdict, or an error, which may be one of the input."""

    verdict: KernelVerdict | None
    error: str = ""
    of_input: bool = False


def prove_kernel(job: KernelJob) -> KernelVerdict:
    """Return what is shown of a kernel's machine code; SpecError for a damaged object, ToolError without capstone."""
    kernel, packers = job.kernel, list[FunctionVerdict]()
    try:
        if isinstance(kernel, MatmulKernel):
            proof = prove_object(job.path, kernel, name=job.function)
            packers = prove_packers(job.path, kernel, name=job.function)
        else:
            sizes = dict.fromkeys([*depthwise_sizes(kernel.program), *job.sizes])
            proof = prove_depthwise(job.path, kernel, name=job.function, sizes=sizes)
    except Refuted as why:
        return KernelVerdict(
            kernel=job.kernel.name, function=job.function, object=job.object, verdict="refused", why=str(why)
        )
    return KernelVerdict(
        kernel=job.kernel.name,
        function=job.function,
        object=job.object,
        verdict="all sizes" if proof.loops else "listed sizes",
        why="" if proof.loops else proof.not_all,
        sizes=len(proof.sizes),
        functions=sorted({*proof.functions, *(x for each in packers if each.is_proved for x in each.functions)}),
        packers=[PackerVerdict(each.function, each.calls, each.why) for each in packers],
        seconds=round(proof.seconds + sum(each.seconds for each in packers), 2),
    )


def prove_kernels(jobs: Sequence[KernelJob], say: Progress) -> list[KernelVerdict]:
    """Return the verdicts of all jobs, in order; errors as `prove_kernel`."""
    verdicts: dict[str, KernelVerdict] = {}
    say("proving kernels", 0, len(jobs))
    for verdict in _verdicts(jobs):
        verdicts[verdict.function] = verdict
        say(f"{verdict.kernel}: {verdict.verdict}", len(verdicts), len(jobs))
    return [verdicts[job.function] for job in jobs]


def _verdicts(jobs: Sequence[KernelJob]) -> Iterator[KernelVerdict]:
    """Yield verdicts as they come; kernels that take longest begin first."""
    workers = min(len(jobs), features.cores())
    if workers < 2:
        yield from map(prove_kernel, jobs)
        return
    ordered = sorted(jobs, key=lambda job: -job.work)
    questions = [base64.b64encode(pickle.dumps(job)) for job in ordered]
    try:
        for line in answers(COMMAND, questions, workers):
            answer = msgspec.json.decode(line, type=_Answer)
            if answer.verdict is None:
                raise (SpecError if answer.of_input else ToolError)(answer.error)
            yield answer.verdict
    except WorkerEnded as ended:
        raise ToolError(f"a process that proves machine code {ended}") from None


def _answer(line: bytes) -> _Answer:
    """Return the answer to a line with a job."""
    try:
        return _Answer(prove_kernel(pickle.loads(base64.b64decode(line))))
    except (SpecError, ToolError) as error:
        return _Answer(None, str(error), isinstance(error, SpecError))


if __name__ == "__main__":
    with take_stdout() as answer:
        for line in sys.stdin.buffer:
            answer(msgspec.json.encode(_answer(line)))
