"""Prove which activation meets which weight in each layer of a network, from the machine code of its library."""

from __future__ import annotations

import gc
import math
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from bitsynth.emit.correction_terms import has_row_terms, row_affines
from bitsynth.emit.packing import packing
from bitsynth.errors import BitsynthError, SpecError, ToolError
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.program import EpilogueProgram
from bitsynth.layers.depthwise import DepthwiseKernel
from bitsynth.layers.packed import PackedLayer
from bitsynth.layers.scheduled_kernel import LayerKernel
from bitsynth.matmul import MatmulKernel
from bitsynth.network.library import NetworkText
from bitsynth.network.machine_code.calls import SCRATCH, KernelShape, ProgramShape, StepCall, StepMemory, WrongCall
from bitsynth.network.machine_code.convolution import Convolution, KernelConvolution
from bitsynth.network.machine_code.depthwise import DepthwiseCall, DepthwiseResultCheck, add_depthwise
from bitsynth.network.machine_code.linear import INT32_BYTES, NamedBytes
from bitsynth.network.machine_code.results import FinishingPrograms, MatmulResultCheck, OutputTensor
from bitsynth.network.program import LayerStep, alias_root
from bitsynth.objects.declared import machine_table
from bitsynth.objects.depthwise import DepthwiseFunction, DepthwiseSizes
from bitsynth.objects.elf import EXTERNAL_FUNCTIONS
from bitsynth.objects.library import CompiledLibrary
from bitsynth.objects.linked import LinkedCode, link_objects
from bitsynth.objects.memory import MemoryPlace, NotShown, OutOfPlace
from bitsynth.objects.operands import WORD, LinkedPlaces
from bitsynth.objects.processor import STACK_ALIGNMENT, CodeProcessor
from bitsynth.objects.prove import without_collection
from bitsynth.objects.values import Contents
from bitsynth.progress import Progress
from bitsynth.spec.layout import Layout

MAX_ELEMENTS = 1 << 20
"""The most activations and results of a layer: each takes more than a kilobyte while the layer is proved."""
THREADS = (1, 3)
"""The numbers of threads with which layers are run."""
_ALIGN = 64
"""The alignment of a network's buffers in its arena, in bytes."""
_PAGE_BITS, _PLACES_BITS = 12, 40
_REGION_BITS = 42
"""Bits of addresses in a region, which has one buffer; `_PLACES_BITS` are fewer, so no buffer leaves its region."""


class LayerVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was shown of the machine code of a layer.

    Attributes:
        step: The number of its step in the network.
        node: The last node of the file that it computes.
        kernel: Its kernel.
        function: The function of the kernel, which it calls.
        verdict: "proved"; "refused" if the code is wrong; "not understood" if it does what a proof cannot follow;
            "not covered" if layers or libraries of this kind have no proof, or if the kernel is not proved for all
            sizes.
        why: Why it is not proved.
        results: How many results of the layer were compared.
        calls: How often the kernel was called.
        sizes: The sizes with which a depthwise kernel was called, for which it must be proved.
        seconds: The CPU time of the proof.
    """

    step: int
    node: str
    kernel: str
    function: str
    verdict: Literal["proved", "refused", "not understood", "not covered"]
    why: str = ""
    results: int = 0
    calls: int = 0
    sizes: list[DepthwiseSizes] = []
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The step and its last node."""
        return f"step {self.step}, {self.node}"

    @property
    def is_proved(self) -> bool:
        """Whether each activation meets the weight that the certificate says."""
        return self.verdict == "proved"

    @property
    def is_refused(self) -> bool:
        """Whether the code is wrong."""
        return self.verdict == "refused"


def prove_layers(
    library: CompiledLibrary, texts: Sequence[NetworkText], say: Progress, *, only: Collection[str] | None = None
) -> list[LayerVerdict]:
    """Return the verdict on each layer of the networks in a library, or on the layers with `only` these last nodes.

    SpecError if an object of the library is damaged, ToolError without capstone.
    """
    steps = [(text, n, step) for text in texts for n, step in enumerate(text.program.steps)]
    layers = [(text, n, step) for text, n, step in steps if isinstance(step, LayerStep)]
    layers = [each for each in layers if only is None or each[2].nodes[-1] in only]
    verdicts: list[LayerVerdict] = []
    linked: dict[str, LinkedCode | str] = {}
    for done, (text, number, step) in enumerate(layers):
        say("proving layers", done, len(layers))
        if text.name not in linked:
            linked[text.name] = _link(library, text)
        verdicts.append(_prove(linked[text.name], text, number, step))
        gc.collect()  # A layer takes up to some gigabytes.
    return verdicts


def _link(library: CompiledLibrary, text: NetworkText) -> LinkedCode | str:
    """Return the library's objects, linked at a random address; or why they cannot be."""
    if len(library.objects) < 2:
        return "layers are proved in an archive of objects, as they are before they are linked"
    base = secrets.randbelow(1 << _PLACES_BITS - _PAGE_BITS) + 1 << _PAGE_BITS
    try:
        return link_objects(
            [x.path for x in library.objects], machine_table(load(text.program.isa)), base, EXTERNAL_FUNCTIONS
        )
    except SpecError as why:
        return str(why)


@without_collection()
def _prove(code: LinkedCode | str, text: NetworkText, number: int, step: LayerStep) -> LayerVerdict:
    """Return what is shown of one layer."""
    start = time.process_time()
    proof = LayerProof(text, number, step)

    def verdict(kind: Literal["proved", "refused", "not understood", "not covered"], why: str = "") -> LayerVerdict:
        return LayerVerdict(
            step=number,
            node=step.nodes[-1],
            kernel=step.layer.plan.kernel.name,
            function=f"{text.name}_{text.parts.layer_names(step.layer)[0]}",
            verdict=kind,
            why=why,
            results=proof.results,
            calls=proof.calls,
            sizes=proof.sizes,
            seconds=round(time.process_time() - start, 2),
        )

    if why := proof.not_covered():
        return verdict("not covered", why)
    if isinstance(code, str):
        return verdict("not covered", code)
    try:
        proof.run(code)
    except (WrongCall, OutOfPlace) as error:
        return verdict("refused", str(error))
    except ToolError:
        raise
    except BitsynthError as error:
        return verdict("not understood", str(error))
    return verdict("proved")


@dataclass
class LayerProof:
    """The proof of one layer: `run` raises WrongCall, OutOfPlace, or another error if the code is not understood."""

    text: NetworkText
    number: int
    step: LayerStep
    results: int = 0
    calls: int = 0
    sizes: list[DepthwiseSizes] = field(default_factory=list)

    @property
    def function(self) -> str:
        """The function that runs the step."""
        return f"{self.text.name}_run_steps"

    def not_covered(self) -> str:
        """Return why nothing is shown of a layer of this kind; "" if something may be."""
        layer = self.step.layer
        kernel, spec = layer.plan.kernel, layer.plan.spec
        program = layer.programs.program
        if not machine_table(load(kernel.spec.isa)).result:
            return "layers are not run as machine code of this architecture"
        reasons = {
            "products of two edges are not covered": self.step.matrices is not None,
            "packed words are not covered": Layout.PACKED in {spec.layout, spec.out_layout}
            or (program is not None and program.spec.planes > 0),
            **_kernels_not_covered(kernel),
            "weights with a zero point are not covered": layer.plan.product != kernel.spec,
            f"layers of more than {MAX_ELEMENTS:,} activations and results are not covered": self._is_too_large(),
        }
        return next((why for why, holds in reasons.items() if holds), "")

    def _is_too_large(self) -> bool:
        buffers = self.text.program.buffers
        edges = [buffers[name].edge for name in (self.step.inputs[0], *self.step.outputs)]
        return sum(math.prod(edge.shape) for edge in edges) > MAX_ELEMENTS

    def run(self, code: LinkedCode) -> None:
        """Run the step with each number of threads, and compare its results."""
        for threads in THREADS:
            try:
                self._run(code, threads)
            except NotShown as why:
                raise type(why)(f"{why}, with {threads} threads" if threads > 1 else str(why)) from None

    def _run(self, code: LinkedCode, threads: int) -> None:
        """Run the step with a number of threads, and compare its results."""
        text, step, layer = self.text, self.step, self.step.layer
        kernel = layer.plan.kernel
        isa = load(text.program.isa)
        values = Contents()
        features = {name for name, f in isa.table.features.items() if {*f.host} <= {*text.needs.host}}
        processor = CodeProcessor(code.file, isa, values, StepMemory(values), features)
        processor.registers.places = LinkedPlaces()
        call = StepCall(processor, code)
        name, programs = text.parts.layer_names(layer)
        if isinstance(kernel, MatmulKernel):
            call.add_kernel(f"{text.name}_{name}", _kernel_shape(kernel))
        else:
            add_depthwise(call, f"{text.name}_{name}", function_of(kernel, layer))
        epilogue = FinishingPrograms(
            layer.programs.by_field,
            {which: f"{text.name}_{program}" for which, program in programs.items()},
            layer.constants.arrays,
            int(layer.constants.numbers["joined_pixels"]),
        )
        for which, each in epilogue.programs.items():
            call.add_program(epilogue.names[which], _program_shape(each, len(epilogue.get_shared(which))))
        of_caller = [*text.program.inputs, *text.program.outputs]
        stack, back, arena, pool, *pointers = (_random_address(k) for k in range(4 + len(of_caller)))
        stack &= -STACK_ALIGNMENT
        size = call.run(f"{text.name}_arena_bytes", [threads], [], stack=stack, back=back)
        if not text.plan.bytes <= size < 1 << _PLACES_BITS:  # More would reach the buffers of the caller.
            raise WrongCall(
                f"{text.name}_arena_bytes returns {size:,}: less than the plan's, or 2^{_PLACES_BITS} or more"
            )
        starts = dict(zip(of_caller, (x & -_ALIGN for x in pointers), strict=True))
        arrays = self._arrays(arena, size, starts)
        if threads > 1:
            pool &= -_ALIGN
            run_tasks, task_back = pool + _ALIGN, pool + 2 * _ALIGN
            known = b"".join(x.to_bytes(WORD, "little") for x in (threads, run_tasks))
            arrays["pool", 0] = MemoryPlace("pool", pool, len(known), known)
            call.add_pool(run_tasks, task_back)
        arguments = [self.number, self.number + 1, *starts.values(), arena, size, pool if threads > 1 else 0]
        status = call.run(self.function, arguments, [*arrays.values()], stack=stack, back=back)
        if status:
            raise WrongCall(f"{self.function} returns {status} for step {self.number}")
        self.calls = len(call.kernel_calls)
        weights = layer.computed_codes
        assert weights is not None
        used = tuple(which for which in ("program", "residual") if which in epilogue.programs)
        result = OutputTensor(arrays["out", 0].start, _result_bytes(layer), layer.plan.spec.out_layout, used)
        outputs = [result]
        if len(step.outputs) > 1:
            outputs.append(OutputTensor(arrays["out", 1].start, INT32_BYTES, Layout.NHWC, ("residual",)))
        computed = layer.plan.computed, weights, np.asarray(layer.bias), step.image
        if isinstance(kernel, MatmulKernel):
            convolution = KernelConvolution(*computed, kernel, layer.plan.product)
            self.results = MatmulResultCheck(call, convolution, epilogue, outputs).run()
        else:
            self.results = DepthwiseResultCheck(call, Convolution(*computed), epilogue, outputs).run()
            calls = [each for each in call.kernel_calls if isinstance(each, DepthwiseCall)]
            self.sizes = list(dict.fromkeys([*self.sizes, *(each.sizes for each in calls)]))

    def _arrays(self, arena: int, size: int, starts: Mapping[str, int]) -> dict[tuple[str, int], MemoryPlace]:
        """Return the buffers of the step and its scratch memory, in an arena of `size` bytes.

        The arrays that the caller gives lie at `starts`.
        """
        buffers, plan = self.text.program.buffers, self.text.plan
        first = -(-arena // _ALIGN) * _ALIGN
        arrays: dict[tuple[str, int], MemoryPlace] = {}
        inputs = [(NamedBytes("in", k), name) for k, name in enumerate(self.step.inputs)]
        outputs = [(NamedBytes("out", k), name) for k, name in enumerate(self.step.outputs)]
        for array, name in (*inputs, *outputs):
            root = alias_root(buffers, name)
            start = first + plan.offsets[root] if root in plan.offsets else starts[root]
            arrays[array] = MemoryPlace(array, start, buffers[name].bytes, writable=array.kind == "out")
        scratch = first + plan.bytes
        arrays["scratch", 0] = MemoryPlace(SCRATCH, scratch, arena + size - scratch, writable=True)
        return arrays


def function_of(kernel: DepthwiseKernel, layer: PackedLayer) -> DepthwiseFunction:
    """Return the function of a depthwise kernel as a layer has it: with its sums in the order that programs read."""
    order = kernel.order(layer.programs.reader)
    assert order is not None, "a layer's programs read sums as its kernel has them"
    return DepthwiseFunction(kernel.name, order)


def _kernels_not_covered(kernel: LayerKernel) -> dict[str, bool]:
    """Return reasons why nothing is shown of layers on some kernels, and whether they hold for this one."""
    if isinstance(kernel, DepthwiseKernel):
        return {"depthwise kernels of signed activations are not covered": kernel.program.act[0] != 0}
    core = kernel.entry.kernel
    return {
        "kernels whose rows hold weights are not covered": core.swapped,
        "kernels with products of neighbours are not covered": core.cross_terms != 0,
        "numbers that are added to rows of sums are not covered": row_affines(core, kernel.spec) != 0,
    }


def _random_address(region: int) -> int:
    """Return a random address in one of several regions, behind the code."""
    return (region + 1) << _REGION_BITS | secrets.randbits(_PLACES_BITS)


def _result_bytes(layer: PackedLayer) -> int:
    """Return the bytes of a result of a layer whose results are not packed words."""
    program = layer.programs.program
    return INT32_BYTES if program is None else program.spec.out_bits // 8


def _kernel_shape(kernel: MatmulKernel) -> KernelShape:
    """Return the sizes of a kernel."""
    core = kernel.entry.kernel
    return KernelShape(
        rows=core.rows,
        columns=core.columns,
        k_step=core.k_step,
        row_bytes=core.row_bytes,
        column_bytes=core.column_bytes,
        of_codes=packing(core).is_of_codes,
        code_bytes=core.code_bytes,
        has_terms=has_row_terms(core, kernel.spec),
        slack=load(core.isa).word.lanes,
        together=core.together,
    )


def _program_shape(program: EpilogueProgram, shared_bytes: int) -> ProgramShape:
    """Return the sizes of an epilogue's program, whose units share `shared_bytes` of constants."""
    _, *others = (x for x in program.spec.inputs if x.per == "element")
    return ProgramShape(
        unit=program.unit,
        constant_bytes=program.constant_bytes,
        shared_bytes=shared_bytes,
        result_bits=program.spec.out_bits,
        other_bytes=sum(x.lane.bits // 8 for x in others),
        reads_row=any(x.per == "row" for x in program.spec.inputs),
    )
