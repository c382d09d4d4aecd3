"""Steps on matrix registers: the declaration, kernels that are proved by it, and C that an emulator runs."""

import os
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.emulated_matrices import EMULATED, HEADER, REAL, write_set

import bitsynth
from bitsynth import toolchain
from bitsynth.errors import BitsynthError, NoKernel, SpecError
from bitsynth.host import features, placement
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.load import load, load_folder
from bitsynth.kernel.matrices import check_matrices, matrix_grid
from bitsynth.kernel.program import MATRIX, ORDERS
from bitsynth.kernel.wellformed import check_shape
from bitsynth.matmul import MatmulKernel
from bitsynth.network.program import LayerStep
from bitsynth.proof.proved import Proved
from bitsynth.run.runner import runner_for
from bitsynth.schedule import cost
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.options import KernelOptions
from bitsynth.store.entry import ProvedEntry
from bitsynth.store.matmul import MATMUL
from bitsynth.synth.synthesize import candidates, synthesize

BYTES = MatmulSpec.plain(REAL, 8, 8)


def shipped(channels=64):
    return bitsynth.get_kernel(REAL, 8, 8, weight_encoding="signed", method=MATRIX, channels=channels)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """The kernels of the set by the channels of their layers, on a set whose matrices are emulated, in a cache."""
    folder = tmp_path_factory.mktemp("matrix")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITSYNTH_ISA", str(folder / "sets"))
        patch.setenv("BITSYNTH_CACHE", str(folder / "kernels"))
        write_set(folder / "sets")
        if absent := features.lacking(load(EMULATED).requirements(matrices=True).host):
            pytest.skip(f"{EMULATED} code needs a processor with {', '.join(absent)}; this one lacks it")
        kernels = {}
        for channels in (64, 16):
            same = msgspec.structs.replace(shipped(channels).entry.kernel, isa=EMULATED)
            entry = ProvedEntry(Proved.by_solver(same, Budget()), KernelOptions(MATRIX, channels=channels), (), 0.0)
            MATMUL.store(entry)
            kernels[channels] = MatmulKernel(entry, MatmulSpec(EMULATED, BYTES.act, BYTES.wgt))
        yield kernels


def multiply_as_declared(isa, acc, a, b):
    """The product of matrices acc (M, 16), a (M, 64) and b (16, 64) by the declaration: an instruction, repeated."""
    repeated = isa[isa.matrices.repeats]
    out = []
    for row, codes in zip(acc, a, strict=True):
        sums = [np.uint64(x) for x in row]
        for k in range(16):
            group = [np.uint64(x) for x in np.tile(codes[4 * k : 4 * k + 4], 16)]
            sums = repeated(ConcreteDomain(), [sums, group, [np.uint64(x) for x in b[k]]])
        out.append([int(x) for x in sums])
    return np.array(out, np.uint64)


def multiply_as_in_the_manual(acc, a, b):
    """The pseudocode of TDPBUSD in Intel's manual, on numpy arrays of the same shapes."""
    out = acc.astype(np.int64)
    for m in range(len(acc)):
        for k in range(16):
            for n in range(16):
                for j in range(4):
                    out[m, n] += int(a[m, 4 * k + j]) * int(b[k, 4 * n + j].astype(np.int8))
    return (out % (1 << 32)).astype(np.uint64)


@pytest.mark.parametrize("fill", ["mixed", "extreme"])
@pytest.mark.parametrize("rows", [1, 16])
def test_the_declared_product_of_matrices_is_the_manuals(rows, fill):
    rng = np.random.default_rng(rows)
    acc = rng.integers(0, 1 << 32, (rows, 16), np.uint64)
    a, b = (rng.integers(0, 256, (n, 64), np.uint8) for n in (rows, 16))
    if fill == "extreme":
        a[:], b[:], acc[0] = 255, rng.choice([127, 128], b.shape), (1 << 31) - 1
    got = multiply_as_declared(load(REAL), acc, a, b)
    np.testing.assert_array_equal(got, multiply_as_in_the_manual(acc, a, b))


@settings(max_examples=12)
@given(st.integers(0, 70), st.integers(0, 200), st.integers(0, 70), st.sampled_from([64, 16]), st.data())
def test_products_are_exact(emulated, m, k, n, channels, data):
    """Of any sizes: positions of K that fill no step, few rows, columns that fill no matrix."""
    kernel = emulated[channels].with_rows(data.draw(st.integers(1, 32)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    a, w = rng.integers(0, 256, (m, k)), rng.integers(-128, 128, (k, n))
    np.testing.assert_array_equal(kernel.matmul(a, w), a @ w)


def test_products_of_the_greatest_codes_are_exact(emulated):
    kernel = emulated[64]
    a, w = np.full((33, 5000), 255), np.full((5000, 33), -128)
    np.testing.assert_array_equal(kernel.matmul(a, w), a @ w)


def test_flushes_add_up(emulated):
    """After every two steps of 64 positions, so that matrices are stored and set to zero again."""
    kernel = emulated[64].with_flushes(2)
    rng = np.random.default_rng(7)
    a, w = rng.integers(0, 256, (40, 450)), rng.integers(-128, 128, (450, 50))
    np.testing.assert_array_equal(kernel.matmul(a, w), a @ w)


def test_the_self_test_of_the_c_passes(emulated):
    kernel = emulated[64]
    library = toolchain.compile_for(load(EMULATED), kernel.c.files, needs=kernel.needs)
    runner = runner_for(load(EMULATED), library, needs=kernel.needs)
    assert runner.call(f"{kernel.name}_selftest", bits=32) == 0


def convolve(x, w, padding, stride):
    """Sums of a convolution of x (N, H, W, C) with w (O, C, KH, KW)."""
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    (_, high, wide, _), (_, _, rows, columns) = x.shape, w.shape
    out = 0
    for i in range(rows):
        for j in range(columns):
            part = x[:, i : high - rows + i + 1 : stride, j : wide - columns + j + 1 : stride]
            out = out + np.einsum("nhwc,oc->nhwo", part, w[:, :, i, j])
    return out


LAYERS = {
    "3 x 3, whole steps": (64, 64, 14, 3, 1, 1, 8, 8),
    "7 x 7, three channels": (3, 20, 17, 7, 3, 2, 8, 8),
    "channels that fill no step": (130, 70, 7, 3, 1, 1, 8, 8),
    "1 x 1 of 4 bits": (64, 100, 9, 1, 0, 1, 4, 4),
    "2 by 1 bit": (64, 64, 8, 3, 1, 2, 2, 1),
}


@pytest.mark.parametrize("gather", ["direct", "indirect", "im2col"])
@pytest.mark.parametrize("case", LAYERS)
def test_layers_are_exact(emulated, case, gather):
    channels, out, size, window, padding, stride, act_bits, w_bits = LAYERS[case]
    encoding = "signed" if w_bits == 8 else "bipolar"
    values = np.arange(-128, 128) if w_bits == 8 else np.arange(1 - (1 << w_bits), 1 << w_bits, 2)
    rng = np.random.default_rng(len(case))
    w = rng.choice(values, (out, channels, window, window))
    schedule = bitsynth.LayerSchedule(EMULATED, MATRIX, 64, gather, operands="8x8" if w_bits < 8 else "")
    layer = bitsynth.Conv2d(
        w,
        act_bits,
        w_bits,
        weight_encoding=encoding,
        padding=padding,
        stride=stride,
        isa=EMULATED,
        image=(size, size),
        schedule=schedule,
    )
    x = rng.integers(0, 1 << act_bits, (2, size, size, channels))
    np.testing.assert_array_equal(layer(x), convolve(x, w, padding, stride))


def test_layers_choose_matrices_by_themselves(emulated):
    rng = np.random.default_rng(3)
    w = rng.integers(-128, 128, (64, 64, 3, 3))
    layer = bitsynth.Conv2d(w, 8, 8, weight_encoding="signed", padding=1, isa=EMULATED, image=(14, 14))
    assert layer.schedule.method == MATRIX
    few = bitsynth.Conv2d(w[:10, :, :1, :1], 8, 8, weight_encoding="signed", isa=EMULATED, image=(1, 1))
    assert few.schedule.method != MATRIX  # Of one row: configuring matrices takes longer than the products.


@pytest.mark.slow
def test_a_network_has_the_same_results(emulated):
    example = Path(__file__).parents[2] / "examples/fashion/fashion_a2w2_qcdq.onnx"
    image = np.random.default_rng(1).integers(0, 256, (1, 1, 28, 28)).astype(np.float32) / 255
    network, other = (bitsynth.compile(example, isa=isa) for isa in (EMULATED, "avx512"))
    assert MATRIX in {step.layer.plan.schedule.method for step in network.program.steps if isinstance(step, LayerStep)}
    np.testing.assert_array_equal(network(image), other(image))


WRONG_USES = {
    "matrices are not configured": "emulate_tilezero(0);",
    "palette 1, from the first row": "configuration[0] = 2; emulate_ldtilecfg(configuration);",
    "bytes and rows, or none": "configuration[48] = 0; emulate_ldtilecfg(configuration);",
    "no such matrix register": "emulate_ldtilecfg(configuration); emulate_tilezero(7);",
    "three different matrix registers": "emulate_ldtilecfg(configuration); emulate_tdpbusd(0, 4, 4);",
    "as many rows of sums as of the first operand": "emulate_ldtilecfg(configuration); emulate_tdpbusd(0, 5, 6);",
    "as many rows of the second operand as columns of the first": (
        "configuration[54] = 15; emulate_ldtilecfg(configuration); emulate_tdpbusd(0, 4, 6);"
    ),
}


@pytest.mark.parametrize("why", WRONG_USES)
def test_the_emulator_refuses_what_the_processor_refuses(why, tmp_path):
    numbers = ", ".join(map(str, matrix_grid(msgspec.structs.replace(shipped().entry.kernel, rows=24)).configuration))
    text = f'#include "{HEADER}"\nint main(void)\n{{\n    __UINT8_TYPE__ configuration[64] = {{{numbers}}};\n'
    (tmp_path / "use.c").write_text(f"{text}    {WRONG_USES[why]}\n    return 0;\n}}\n")
    compiler = toolchain.compilers(load(REAL))[0]
    subprocess.run([*compiler.command, "use.c", "-o", "use"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "use"], capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert done.stdout == why


def test_matrices_are_configured_for_the_rows_that_they_have():
    grid = matrix_grid(msgspec.structs.replace(shipped().entry.kernel, rows=28))
    assert [list(grid.rows_of(group)) for group in grid.groups] == [list(range(16)), list(range(16, 28))]
    configuration = grid.configuration
    assert len(configuration) == 64
    assert configuration[:16] == bytes([1, *[0] * 15])
    assert [int.from_bytes(configuration[16 + 2 * t : 18 + 2 * t], "little") for t in range(16)] == [64] * 7 + [0] * 9
    # Sums of two groups by two column registers, rows of two groups, columns.
    assert list(configuration[48:]) == [16, 16, 12, 12, 16, 12, 16] + [0] * 9


def change_step(kernel, change):
    """The kernel with other steps of its only loop."""
    (only,) = kernel.passes
    loop = msgspec.structs.replace(only.step, steps=tuple(change(only.step.steps)))
    return msgspec.structs.replace(kernel, passes=(msgspec.structs.replace(only, loops=(loop,)),))


def swap_inputs(steps):
    """Multiply the row's first input with the second of the columns, and the other way round."""
    first, second = steps[0].args[2], steps[2].args[2]
    names = {first: second, second: first}
    return [step.rename(lambda value: names.get(value, value)) for step in steps]


WRONG = {
    "inputs that do not meet": lambda k: change_step(k, swap_inputs),
    "the other order": lambda k: change_step(k, lambda steps: [steps[1], steps[0], *steps[2:]]),
    "one instruction less": lambda k: change_step(k, lambda steps: steps[:-1]),
    "too many rows": lambda k: msgspec.structs.replace(k, rows=33),
    "no room for sums": lambda k: msgspec.structs.replace(k, rows=32, columns=48, slots=tuple(range(48))),
    "no matrix registers": lambda k: msgspec.structs.replace(k, isa="avx512"),
    "planes apart": lambda k: msgspec.structs.replace(k, bit_axis="outer"),
    "terms of neighbours": lambda k: msgspec.structs.replace(k, together=2),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_other_steps_are_refused(wrong):
    kernel = WRONG[wrong](shipped().entry.kernel)
    with pytest.raises(BitsynthError):
        check_shape(load(kernel.isa), kernel)


@pytest.mark.parametrize("isa", ["avx512", REAL])
def test_no_other_kernel_has_the_order_of_matrices(isa):
    kernel = bitsynth.get_kernel("avx512", 8, 8, weight_encoding="signed", method="dot", channels=64)
    with pytest.raises(SpecError, match=r"steps (run )?on matrix registers"):
        check_matrices(load(isa), msgspec.structs.replace(kernel.entry.kernel, isa=isa))
    with pytest.raises(SpecError, match="matrix registers"):
        kernel.with_order(MATRIX)


def test_rows_of_a_kernel_in_matrices_have_other_orders_too(emulated):
    """What is proved is the program of a row, and instructions on vectors run it as well."""
    kernel = emulated[16].with_rows(4)
    rng = np.random.default_rng(5)
    a, w = rng.integers(0, 256, (9, 130)), rng.integers(-128, 128, (130, 20))
    for order in ORDERS:
        np.testing.assert_array_equal(kernel.with_order(order).matmul(a, w), a @ w)


def test_kernels_are_found_again():
    synthesis = synthesize(BYTES, KernelOptions(MATRIX, channels=64))
    assert synthesis.entry.kernel == shipped().entry.kernel
    assert any(lemma.startswith("matrices: ") for lemma in synthesis.entry.certificate.lemmas)


def test_a_product_of_matrices_takes_16_cycles():
    """16 x 16 x 64 products in 16 cycles are 128 in an eighth of a cycle; memory takes no longer."""
    kernel, isa = shipped().entry.kernel, load(REAL)
    assert cost.cycles_per_128_mac(isa, kernel, "icelake") == 0.125
    assert cost.stall_per_128_mac(isa, kernel, "icelake") < 0.01
    fewer = msgspec.structs.replace(kernel, rows=17)
    assert cost.cycles_per_128_mac(isa, fewer, "icelake") == pytest.approx(0.125 * 32 / 17)


WRONG_SETS = {
    "matrices.cycles: want cycles for icelake": ("icelake = {", "zen4 = {"),
    "probes: want a C expression that asks for sve": ('host = ["avx512_vnni"]', 'host = ["sve"]'),
}


@pytest.mark.parametrize("why", WRONG_SETS)
def test_a_wrong_set_with_matrices_is_named(monkeypatch, tmp_path, why):
    monkeypatch.setenv("BITSYNTH_ISA", str(tmp_path))
    write_set(tmp_path)
    path = tmp_path / EMULATED / "isa.toml"
    text, (old, new) = path.read_text(), WRONG_SETS[why]
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(SpecError, match=why):
        load_folder(path.parent)


def test_a_set_without_matrices_has_no_such_kernel():
    spec = MatmulSpec.plain("avx512", 8, 8)
    with pytest.raises(NoKernel, match="avx512 has no instruction for the matrix method"):
        candidates(load("avx512"), spec, KernelOptions(MATRIX), Budget())


def test_other_kernels_are_those_of_the_set_that_it_extends():
    assert bitsynth.get_kernel(REAL, 8, 8, weight_encoding="signed").spec.isa == REAL
    assert bitsynth.get_kernel(REAL, 2, 1).name == bitsynth.get_kernel("avx512", 2, 1).name
    assert placement.sets_of(REAL)[:2] == [REAL, "avx512"]


def pretend(monkeypatch, found):
    """Be on an x86-64 processor with the features `found`."""
    monkeypatch.setattr(features, "arch", lambda: "x86_64")
    monkeypatch.setattr(features, "features", lambda: frozenset(found))


def test_auto_is_no_set_that_nobody_has_timed(monkeypatch):
    monkeypatch.delenv("BITSYNTH_ISA", raising=False)
    monkeypatch.delenv("BITSYNTH_RUNNER", raising=False)
    plain = {*load("avx2").table.host_features, *load("avx512").requirements(load("avx512").instrs).host}
    pretend(monkeypatch, plain)
    assert placement.widest("auto") == "avx512"
    pretend(monkeypatch, plain | {"amx_tile", "amx_int8"})
    assert placement.widest("auto") == "avx512"
    monkeypatch.setattr(placement, "load_table", lambda name: msgspec.structs.replace(load(name).table, auto=True))
    assert placement.widest("auto") == REAL
    pretend(monkeypatch, load("avx2").table.host_features)
    assert placement.native_sets() == ["avx2"]


@pytest.mark.parametrize(("answer", "has"), [(0, True), (-1, False)])
def test_a_system_may_refuse_matrices(monkeypatch, tmp_path, answer, has):
    asked = []

    class System:
        def __init__(self, _):
            pass

        def syscall(self, *numbers):
            asked.append(tuple(x.value for x in numbers))
            return answer

    (tmp_path / "cpuinfo").write_text("flags : avx2 amx_tile amx_int8\n")
    monkeypatch.setattr("ctypes.CDLL", System)
    monkeypatch.setattr(features, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(features, "arch", lambda: "x86_64")
    assert ("amx_tile" in features._linux_features()) == has
    assert asked == [(158, 0x1023, 18)]


def test_the_c_says_whether_the_processor_has_matrices():
    kernel, isa = shipped(), load(REAL)
    lacked = [f for f in kernel.needs.host if f in features.lacking(kernel.needs.host)]
    name = f"{kernel.name}_missing_feature"
    text = f"int lacks_a_feature(void);\nint lacks_a_feature(void) {{ return {name}() != 0; }}\n"
    files = {
        f"{kernel.name}.h": kernel.c.header,
        "features.c": kernel.c.features,
        "ask.c": f'#include "{kernel.name}.h"\n{text}',
    }
    for compiler in toolchain.compilers(isa):
        library = toolchain.compile_for(isa, files, compiler=compiler)
        runner = runner_for(load("avx2"), library)
        assert runner.call("lacks_a_feature", bits=32) == bool(lacked), lacked


def encode_product(acc, a, b):
    """TDPBUSD acc, a, b as in the manual: VEX.128.66.0F38.W0 5E 11:rrr:bbb, b in VEX.vvvv."""
    return bytes([0xC4, 0xE2, (~b & 15) << 3 | 1, 0x5E, 0xC0 | acc << 3 | a])


def encode_zero(t):
    """TILEZERO: VEX.128.F2.0F38.W0 49 11:rrr:000."""
    return bytes([0xC4, 0xE2, 0x7B, 0x49, 0xC0 | t << 3])


def test_every_compiler_writes_instructions_on_matrices():
    kernel, isa = shipped().with_rows(28), load(REAL)
    products = [encode_product(acc, a, 6) for acc, a in ((0, 4), (1, 4), (2, 5), (3, 5))]
    zeros = [encode_zero(t) for t in range(4)]
    release = bytes([0xC4, 0xE2, 0x78, 0x49, 0xC0])
    for compiler in toolchain.compilers(isa):
        library = toolchain.compile_for(isa, kernel.c.files, needs=kernel.needs, compiler=compiler)
        code = library.read_bytes()
        assert [code.count(x) for x in (*products, *zeros, release)] == [1] * 9, compiler.name


def on_matrices():
    """Skip unless BITSYNTH_REQUIRE_ISA names the set and the processor and its system have matrices."""
    if REAL not in os.environ.get("BITSYNTH_REQUIRE_ISA", ""):
        pytest.skip(f"BITSYNTH_REQUIRE_ISA does not name {REAL}, which has not run on a processor yet")
    if absent := features.lacking(shipped().needs.host):
        pytest.skip(f"{REAL} code needs a processor with {', '.join(absent)}; this one lacks it")


@pytest.mark.parametrize("channels", [64, 16])
def test_products_on_a_processor_with_matrices(channels):
    on_matrices()
    rng = np.random.default_rng(1)
    for rows in (32, 17, 1):
        kernel = shipped(channels).with_rows(rows)
        for m, k, n in ((33, 65, 40), (70, 200, 70), (1, 1, 1)):
            a, w = rng.integers(0, 256, (m, k)), rng.integers(-128, 128, (k, n))
            np.testing.assert_array_equal(kernel.matmul(a, w), a @ w)


def test_layers_on_a_processor_with_matrices():
    on_matrices()
    rng = np.random.default_rng(2)
    w, x = rng.integers(-128, 128, (70, 64, 3, 3)), rng.integers(0, 256, (2, 14, 14, 64))
    for threads in (1, 3):
        layer = bitsynth.Conv2d(w, 8, 8, weight_encoding="signed", padding=1, isa=REAL, image=(14, 14), threads=threads)
        assert layer.schedule.method == MATRIX
        np.testing.assert_array_equal(layer(x), convolve(x, w, 1, 1))
