"""Kernels from Python: fetch a proved one, read its C, multiply with it.

Nothing here imports Z3: cached kernels are checked by `proof.checker` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.emit.kernel import CSource
from bitsynth.emit.runtime_files import encoder_files
from bitsynth.errors import SpecError
from bitsynth.host.placement import cpu_here, widest
from bitsynth.isa.load import Requirements, load
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Kernel
from bitsynth.kernel.straight_line import needs
from bitsynth.kernel.wellformed import MAX_UNROLL
from bitsynth.proof.encodings import require_exact
from bitsynth.proof.proved import Proved
from bitsynth.schedule.cost import KernelCost
from bitsynth.schedule.flush import with_flush_period
from bitsynth.schedule.quickest import quickest
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec, plain_array, whole_array
from bitsynth.spec.options import KernelOptions, model_of, synth_command
from bitsynth.store.entry import Certificate, Entry, ProvedEntry, require_proved
from bitsynth.store.matmul import MATMUL

if TYPE_CHECKING:
    from bitsynth.kernel.elementwise.program import EpilogueProgram
    from bitsynth.run.runner import Runner


class MatmulKernel:
    """A proved kernel under the encodings of `spec`.

    Args:
        entry: The proved entry of the kernel; `get_kernel` returns one from the cache.
        spec: Widths and encodings of the operands, and the instruction set.

    Attributes:
        proved_entry: Program and proof.
        spec: Widths and encodings of the operands, and the instruction set.
        name: The name in C, `bs_mm_...`: widths, encodings, accumulators, instruction set and tile.
        kind: Its kind in the store.
        field: The field of `struct bs_layer` that points to it.

    Raises:
        SpecError: The entry is not a proved one, or proves other widths.
    """

    kind, field = MATMUL, CSource.field

    def __init__(self, entry: ProvedEntry, spec: MatmulSpec) -> None:
        self.proved_entry = require_proved(entry)
        self.spec = spec
        if spec.core != (proved := self.entry.kernel.core):
            raise SpecError(f"the proof is of {proved.act} x {proved.wgt} on {proved.isa}, not of {spec}")
        require_exact(spec)
        self.name = str(KernelName.of(self.entry.kernel, spec))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the entry alone, not the compiled library; it is checked again when it is unpickled."""
        return MatmulKernel, (self.proved_entry, self.spec)

    def __repr__(self) -> str:
        return f"<bitsynth kernel {self.name}>"

    def with_rows(self, rows: int) -> MatmulKernel:
        """Return the kernel for a tile of `rows` rows; SpecError for more than it has, which registers may not hold."""
        kernel = self.entry.kernel
        if type(rows) is int and rows % kernel.together:
            raise SpecError(f"rows of {self.name} come in groups of {kernel.together}, so not {rows}")
        if type(rows) is not int or not 1 <= rows <= kernel.rows:
            raise SpecError(f"rows of {self.name} can be 1 to {kernel.rows}, not {rows!r}")
        return self._form(msgspec.structs.replace(kernel, rows=rows))

    def with_flushes(self, steps: int) -> MatmulKernel:
        """Return the kernel that flushes after every `steps` steps of K, or earlier if its proof needs that."""
        if type(steps) is not int or steps < 1:
            raise SpecError(f"steps between flushes must be a whole number of at least 1, not {steps!r}")
        return self._form(self.entry.kernel.with_passes(lambda loop: with_flush_period(loop, steps)))

    def with_unroll(self, times: int) -> MatmulKernel:
        """Return the kernel whose innermost loop is unrolled `times` times, 0 for as often as the compiler likes."""
        if type(times) is not int or not 0 <= times <= MAX_UNROLL:
            raise SpecError(f"a loop can be unrolled 0 to {MAX_UNROLL} times, not {times!r}")
        return self._form(msgspec.structs.replace(self.entry.kernel, unroll=times))

    def with_bit_axis(self, position: str) -> MatmulKernel:
        """Return the kernel with bit planes at `position`, one of BIT_AXES; SpecError if it cannot have them there."""
        if position not in self.entry.kernel.bit_axes:
            known = " or ".join(self.entry.kernel.bit_axes)
            raise SpecError(f"the bit axis of {self.name} can be {known}, not {position!r}")
        return self._form(msgspec.structs.replace(self.entry.kernel, bit_axis=position))

    def with_order(self, order: str) -> MatmulKernel:
        """Return the kernel with the order of instructions `order`: one of ORDERS, or an in-order processor."""
        return self._form(msgspec.structs.replace(self.entry.kernel, order=order))

    def on(self, cpu: str) -> MatmulKernel:
        """Return the quickest form for `cpu`: for an in-order processor with pipelined loops, perhaps of fewer rows.

        SpecError for a processor that the set does not name; "" is none in particular.
        """
        if cpu:
            load(self.spec.isa).for_cpu(cpu)
        return self._form(quickest(self.entry.kernel, cpu))

    def _form(self, kernel: Kernel) -> MatmulKernel:
        entry = self.proved_entry.form(kernel)
        return self if entry is self.proved_entry else MatmulKernel(entry, self.spec)

    @property
    def entry(self) -> Entry:
        """The text of the kernel: program, certificate, cost."""
        return self.proved_entry.entry

    @property
    def cost(self) -> KernelCost:
        """The cost per 128 multiply-accumulates."""
        return self.entry.cost

    @property
    def certificate(self) -> Certificate:
        """The lemmas that prove the kernel, and the claims on its cost."""
        return self.entry.certificate

    @property
    def forms(self) -> set[str]:
        """The instruction forms of its C."""
        return {*self.entry.kernel.forms}

    @property
    def k_max(self) -> int:
        """The largest K it accepts: no sum leaves int32."""
        return self.spec.k_max

    @cached_property
    def c(self) -> CSource:
        """The C, each file rendered when first asked for: once, however many layers have the kernel."""
        return _source(self.proved_entry.proved, self.spec)

    def source_for(self, program: EpilogueProgram | None) -> CSource:
        """Return the C of the kernel in a layer with `program` as its epilogue: the same for every epilogue."""
        return self.c

    def is_read_by(self, program: EpilogueProgram) -> bool:
        """Return True: whatever the epilogue `program`, it can read the sums of this kernel."""
        return True

    @property
    def stored(self) -> Entry:
        """The store's record of the kernel from which `with_rows`, `with_flushes` and the like made this one."""
        entry = self.proved_entry
        while entry.base is not None:
            entry = entry.base
        return entry.entry

    @property
    def header(self) -> str:
        """The C header."""
        return self.c.header

    @property
    def source(self) -> str:
        """The C source: C11 with intrinsics, for any M, N and K."""
        return self.c.source

    @cached_property
    def needs(self) -> Requirements:
        """The requirements of the kernel's instructions on compiler and processor."""
        return needs(self.entry.kernel)

    @property
    def files(self) -> Mapping[str, str]:
        """The C texts by file name: header, source, the question for the processor's features, self-test."""
        return self.c.files_by(synth_command(self.spec, self.proved_entry.options))

    @property
    def audit_files(self) -> Mapping[str, str]:
        """The second checker and the record that it reads, by file name; none for a kind that it does not cover.

        Refuted if it does not accept the kernel.
        """
        from bitsynth.isa.step import to_builtins
        from bitsynth.proof.recheck import audit_files

        return audit_files(self.name, to_builtins(self.entry), self.spec)

    @cached_property
    def runner(self) -> Runner:
        """The compiled kernel, native if the host can run it, else emulated.

        Raises:
            ToolError: No compiler, or no way to run it, is found.
        """
        return self.compile()

    def compile(self, more: Mapping[str, str] | None = None, *, count: bool = False) -> Runner:
        """Return the kernel compiled together with other C files, ready to be called.

        Args:
            more: Texts of C files by name, compiled and linked with the kernel's.
            count: Whether to count instructions, which an emulator does.

        Raises:
            ToolError: It cannot be compiled or run.
        """
        from bitsynth import toolchain
        from bitsynth.run.runner import runner_for

        isa, needs = load(self.spec.isa), self.needs
        own = {**self.files, **encoder_files()}
        sources = {**own, **(more or {})}
        library = toolchain.compile_for(isa, sources, needs=needs, flags=("-DBITSYNTH_NO_MAIN",), cached=own)
        return runner_for(isa, library, needs=needs, count=count)

    def library(self, compiler: str, *flags: str) -> Path:
        """Return the library of the microkernel that a compiler builds.

        Args:
            compiler: The name of a compiler, or of a family of compilers.
            flags: Further flags of the compiler.

        Raises:
            ToolError: No such compiler builds code of the instruction set.
        """
        from bitsynth import toolchain

        isa = load(self.spec.isa)
        chosen = toolchain.find_compiler(isa, compiler)
        sources = {file: text for file, text in self.files.items() if not file.endswith("_selftest.c")}
        return toolchain.compile_for(isa, sources, needs=self.needs, flags=flags, compiler=chosen)

    def matmul(self, a: ArrayLike, w: ArrayLike) -> NDArray[np.int32]:
        """Return the product `a @ w` of operand values: int32 (M, N).

        Args:
            a: Activations (M, K), of any integer dtype.
            w: Weights (K, N), of any integer dtype, or whole floats.

        Raises:
            SpecError: Shapes do not fit, the encoding does not hold a value, or K is beyond `k_max`.
            ToolError: The kernel cannot be compiled or run.
        """
        from bitsynth.run.arguments import encode

        a, w = plain_array(a, "a"), whole_array(w, "w")
        m, k, n = self._shape(a, w)
        act, wgt = encode(self.runner, self.spec.act, a, "a"), encode(self.runner, self.spec.wgt, w, "w")
        out = np.zeros((m, n), np.int32)
        if out.size and k:
            self._multiply(act, wgt, out)
        return out

    def _shape(self, a: NDArray[Any], w: NDArray[Any]) -> tuple[int, int, int]:
        if a.ndim != 2 or w.ndim != 2 or a.shape[1] != w.shape[0]:
            raise SpecError(f"want a (M, K) and w (K, N), not {a.shape} and {w.shape}")
        if a.shape[1] > self.k_max:
            raise SpecError(f"K is {a.shape[1]}, but sums over more than {self.k_max} may leave int32; split K")
        return a.shape[0], a.shape[1], w.shape[1]

    def _multiply(self, act: NDArray[np.uint8], wgt: NDArray[np.uint8], out: NDArray[np.int32]) -> None:
        (m, k), n = act.shape, wgt.shape[1]
        packed_act = self._buffer(f"{self.name}_act_bytes", m, k)
        packed_wgt = self._buffer(f"{self.name}_wgt_bytes", k, n)
        self.runner.call(f"{self.name}_pack_act", m, k, act, packed_act)
        self.runner.call(f"{self.name}_pack_wgt", k, n, wgt, packed_wgt)
        self.runner.call(f"{self.name}_matmul", m, k, n, packed_act, packed_wgt, out, bits=32)

    def _buffer(self, symbol: str, *sizes: int) -> NDArray[np.uint64]:
        size = self.runner.call(symbol, *sizes)
        if size < 0:
            shape = " x ".join(map(str, sizes))
            raise SpecError(f"{symbol}: no memory of {self.spec.isa} holds an operand of {shape}; split it")
        return np.empty(-(-size // 8), np.uint64)


@lru_cache(maxsize=256)
def _source(proved: Proved[Kernel], spec: MatmulSpec) -> CSource:
    return CSource(proved, spec)


def get_kernel(
    isa: str,
    act_bits: int,
    w_bits: int,
    act_encoding: str = "unsigned",
    weight_encoding: str = "bipolar",
    *,
    method: str | None = None,
    cpu: str = "",
    channels: int = 0,
    sketch: str = "exact",
    k_step: int = 0,
) -> MatmulKernel:
    """Return the cached kernel for these widths and encodings, its certificate checked again.

    By default it is the kernel of fewest operations among all methods, compared to a tenth, then by the bytes that
    kernels read. A set with matrix registers that has no kernel of its own takes the kernel of the set that it extends.

    Args:
        isa: An instruction set, such as "neon" or "avx2" (`bitsynth isa list`), or "auto" for the best this processor
            has; then the kernel is the one for this processor, if that is known and one is cached.
        act_bits: Bits of activations, 1 to 8.
        w_bits: Bits of weights, 1 to 8.
        act_encoding: The values of activations: "unsigned", "signed", "bipolar", "ternary" or "narrow".
        weight_encoding: The values that the codes of weights stand for.
        method: The cheapest kernel of "popcount", "lookup", "pairs", "multiply", "fip", "dot" or "matrix"; of all
            methods if None.
        cpu: A processor, such as "a72": the kernel of fewest cycles on it; for an in-order one, such as "a53", with
            its steps in that order (`MatmulKernel.on`), derived from the same proof.
        channels: Output channels of the layers that the kernel is for, 0 for none.
        sketch: "exact", or "paper" for the sketch of CGO 2020.
        k_step: Positions of K that a step takes, of a kernel by popcount; 0 for as many as is usual.

    Raises:
        SpecError: Widths, encodings or the instruction set do not exist, the configuration is not cached, or
            its cache file does not check.
    """
    act = MatmulOperand(act_bits, Encoding.parse(act_encoding))
    wgt = MatmulOperand(w_bits, Encoding.parse(weight_encoding))
    if isa == "auto":
        isa = widest(isa)
        own = cpu_here(load(isa).table) if sketch == "exact" else ""
        known = MATMUL.find_for(MatmulSpec(isa, act, wgt), KernelOptions(method, sketch, own, channels, k_step))
        cpu = cpu or (own if known else "")
    options = KernelOptions(method, sketch, model_of(load(isa), cpu), channels, k_step)
    return cached_kernel(MatmulSpec(isa, act, wgt), options).on(cpu)


def cached_kernel(spec: MatmulSpec, options: KernelOptions) -> MatmulKernel:
    """Return the cached kernel that `options` ask for, its certificate checked again; SpecError if there is none."""
    table = options.isa(spec.isa).table
    path = MATMUL.find_for(spec, options)
    if path is None and table.matrices and table.extends:
        extended = replace(spec, isa=table.extends)
        if MATMUL.find_for(extended, options):
            return cached_kernel(extended, options)
    if path is None:
        variant = f", {options.variant}" if options.variant else ""
        raise SpecError(
            f"A{spec.act.bits}W{spec.wgt.bits} on {spec.isa}{variant} is not cached; "
            f"run `{synth_command(spec, options)}`"
        )
    return MatmulKernel(MATMUL.load(path), spec)
