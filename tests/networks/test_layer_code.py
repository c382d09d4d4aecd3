"""Machine code of layers: each activation meets the weight that it is to meet; and runtimes that are wrong."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from support.case_selection import quick
from support.layer_programs import (
    CASES,
    DEPTHWISE_CASES,
    HIGH,
    PAIRED,
    WIDE,
    depthwise_text_of,
    text_of,
    write_files,
)

from bitsynth.emit.packing import packing
from bitsynth.errors import SpecError
from bitsynth.host import features
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.packing import tiles
from bitsynth.matmul import MatmulKernel
from bitsynth.network.machine_code.columns import codes_of_columns
from bitsynth.store.matmul import MATMUL

pytestmark = pytest.mark.toolchains

FLAGS = ("-std=c11", "-DNDEBUG")


def compiled(source, folder, out, compiler="gcc", flags=("-O2", "-mavx2")):
    """The object of a C file, whose headers are in a folder."""
    subprocess.run([compiler, *FLAGS, *flags, f"-iquote{folder}", "-c", str(source), "-o", str(out)], check=True)
    return out


def build(folder, text, compiler, *flags):
    """Write a network's C into a folder, and the object of each file."""
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    if features.arch() != "x86_64" or not shutil.which(compiler):
        pytest.skip(f"needs {compiler} for x86_64")
    write_files(text, folder)
    for source in sorted(folder.glob("*.c")):
        if source.stem != "main" and not source.stem.endswith("_selftest"):
            compiled(source, folder, source.with_suffix(".o"), compiler, flags)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the network, with the object of each of its C files."""
    return build(tmp_path_factory.mktemp("net"), text_of("avx2"), "gcc", "-O2", "-mavx2")


@pytest.fixture(scope="module")
def paired(tmp_path_factory):
    """The same of layers whose kernels read pairs of rows."""
    return build(tmp_path_factory.mktemp("paired"), text_of("avx2", 1), "gcc", "-O2", "-mavx2")


@pytest.fixture(scope="module")
def depthwise(tmp_path_factory):
    """The same of layers on depthwise kernels."""
    return build(tmp_path_factory.mktemp("depthwise"), depthwise_text_of("avx2"), "gcc", "-O2", "-mavx2")


def verdicts(folder, text, layers=(), changed=None):
    """What is shown of a network's layers of these names, or of all; `changed` replaces the object of its name."""
    from bitsynth.network.machine_code import prove

    return prove.prove_layers(library_in(folder, changed), [text], lambda *_: None, only={*layers} or None)


def library_in(folder, changed=None, defined=frozenset()):
    """The library of the objects in a folder; `changed` replaces the object of its name."""
    from bitsynth.objects.library import CompiledLibrary, LibraryObject

    paths = [changed if changed and changed.name == path.name else path for path in sorted(folder.glob("*.o"))]
    objects = (LibraryObject(path.name, path, 0, 0, frozenset(defined) & {f"net_{path.stem}"}, ()) for path in paths)
    return CompiledLibrary(folder / "libnet.a", "", tuple(objects))


def verdict_of_changed(folder, tmp_path, file, old, new, layer, network):
    """What is shown of a layer whose runtime has another text in the one place of a file that has the old text."""
    text = (folder / file).read_text()
    assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
    source = tmp_path / file
    source.write_text(text.replace(old, new))
    (shown,) = verdicts(folder, network, [layer], compiled(source, folder, tmp_path / f"{source.stem}.o"))
    return shown


@pytest.mark.parametrize("names", quick([[*CASES][:3]], of=[[*CASES][:3], [*CASES][3:]]), ids=len)
def test_each_activation_meets_its_weight(built, names):
    shown = verdicts(built, text_of("avx2"), names)
    assert [(each.node, each.verdict, each.why) for each in shown] == [(name, "proved", "") for name in names]
    assert "direct" not in names or shown[0].results == HIGH * WIDE * CASES["direct"].out_channels


def test_layers_of_too_many_elements_are_not_run(built, monkeypatch):
    from bitsynth.network.machine_code import prove

    monkeypatch.setattr(prove, "MAX_ELEMENTS", HIGH * WIDE)
    (shown,) = verdicts(built, text_of("avx2"), ["direct"])
    assert shown.verdict == "not covered"
    assert "of more than 35 activations and results" in shown.why


@pytest.mark.parametrize("size", ["0", "(size_t)1 << 41"])
def test_an_arena_that_holds_no_plan_or_all_buffers_is_refused(built, size, tmp_path):
    text = (built / "net.c").read_text()
    begin = re.search(r"size_t net_arena_bytes\(.*\)\n\{\n", text)
    source = tmp_path / "net.c"
    source.write_text(f"{text[: begin.end()]}    return {size};\n{text[begin.end() :]}")
    (shown,) = verdicts(built, text_of("avx2"), ["direct"], compiled(source, built, tmp_path / "net.o"))
    assert (shown.verdict, "net_arena_bytes returns" in shown.why) == ("refused", True)


@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "isa"), [("clang", "avx2"), ("gcc", "avx512")])
def test_what_other_compilers_make_is_proved(tmp_path, compiler, isa):
    flags = text_of(isa).needs.cc_flags
    shown = verdicts(build(tmp_path, text_of(isa), compiler, "-O3", *flags), text_of(isa))
    assert [(each.node, each.verdict, each.why) for each in shown] == [(name, "proved", "") for name in CASES]


MUTANTS = {
    "a pixel's stride": ("bs_tiles.c", "right = bs_step(c, l->stride_w)", "right = bs_step(c, l->stride_h)", "strided"),
    "a line's stride": ("bs_tiles.c", "down = bs_step(c, l->stride_h)", "down = bs_step(c, l->stride_w)", "strided"),
    "the next row": ("bs_tiles.c", "to[row + i] = at;", "to[row + i] = at + right;", "direct"),
    "rows and columns of a window": (
        "bs_tiles.c",
        "i / l->kernel_w, i % l->kernel_w",
        "i % l->kernel_h, i / l->kernel_h",
        "indirect",
    ),
    "a last tile": ("bs_tiles.c", "        end - first,\n", "        end - first - (end - first > 1),\n", "codes"),
    "weights of a group": ("bs_tiles.c", "(c->group * c->tiles + first)", "(first)", "dilated"),
    "where a group starts": ("bs_tiles.c", "c->group * l->out_places + first", "first", "dilated"),
    "terms of a window": (
        "bs_tiles.c",
        "oy * l->stride_h + ky * l->dilation_h - first",
        "oy * l->stride_h + ky - first",
        "dilated",
    ),
    "terms of padding": (
        "bs_tiles.c",
        "&y, &x) ? sums[y * c->grid_w + x] : pad",
        "&y, &x) ? sums[y * c->grid_w + x] : 0 * pad + 1",
        "indirect",
    ),
    "terms of a strip": ("bs_tiles.c", "s->term + place,", "s->term,", "direct"),
    "a dilated line": (
        "bs_layer.c",
        "i / across * l->dilation_h * c->line_bytes",
        "i / across * c->line_bytes",
        "dilated",
    ),
    "a dilated pixel": (
        "bs_layer.c",
        "i % across * l->dilation_w * c->pixel_bytes",
        "i % across * c->pixel_bytes",
        "dilated",
    ),
    "padding at the left": (
        "bs_pack.c",
        "left = padded ? l->pad_left : 0",
        "left = padded ? l->pad_left - 1 : 0",
        "strided",
    ),
    "padding at the top": ("bs_pack.c", "top = padded ? l->pad_top : 0", "top = padded ? l->pad_top + 1 : 0", "banded"),
    "padding's code": (
        "bs_pack.c",
        "memset(s->patch, (int)l->pad_code,",
        "memset(s->patch, (int)l->pad_code + 1,",
        "direct",
    ),
    "a tap of a patch": (
        "bs_pack.c",
        "const size_t before = (tap - left) * in.apart;",
        "const size_t before = (tap - left + 1) * in.apart;",
        "patches",
    ),
    "a line of a patch": (
        "bs_pack.c",
        "y * l->stride_h + ky * l->dilation_h;",
        "y * l->stride_h + ky * l->dilation_h + 1;",
        "patches",
    ),
    "a band's first line": (
        "bs_layer.c",
        "view_of(c, slot, from * stride)",
        "view_of(c, slot, from * stride + (from > 0))",
        "banded",
    ),
    "where results go": ("bs_finish.c", "+ p) * pixel + first", "+ p) * pixel", "dilated"),
    "constants of a unit": (
        "bs_finish.c",
        "l->unit_constants + unit * program",
        "l->unit_constants + 0 * unit * program",
        "codes",
    ),
    "an element of the residual": ("bs_residual.c", "l->out_channels + strip->column;", "l->out_channels;", "added"),
    "a sum that is kept": (
        "bs_residual.c",
        "sums, c->sum + first * sizeof *sums, pixel * sizeof *sums",
        "sums, c->sum + first * sizeof *sums, strip->columns * sizeof *sums - 4",
        "kept",
    ),
    "a transposed result": (
        "bs_finish.c",
        "(first * plane + strip->p) * bytes",
        "(first * plane + strip->p + 1) * bytes",
        "first",
    ),
}
"""By what is wrong: the file, its text, what takes the place of that, and a layer that it changes."""


@pytest.mark.slow
@pytest.mark.parametrize("what", MUTANTS)
def test_a_wrong_runtime_is_refused(built, tmp_path, what):
    file, old, new, layer = MUTANTS[what]
    shown = verdict_of_changed(built, tmp_path, file, old, new, layer, text_of("avx2"))
    assert shown.verdict == "refused", shown
    assert " at 0x" in shown.why or "no instruction stores it" in shown.why


@pytest.mark.slow
def test_pairs_of_rows_meet_their_weights(paired):
    """Each row of a pair, also those at the ends of lines of odd width."""
    shown = verdicts(paired, text_of("avx2", 1))
    assert [(each.node, each.verdict, each.why) for each in shown] == [(name, "proved", "") for name in PAIRED]
    assert shown[0].results == HIGH * WIDE * PAIRED["direct"].out_channels


PAIR_MUTANTS = {
    "the next pixel": ("next = bs_step(c, l->stride_w), last", "next = bs_step(c, l->stride_h), last", "strided"),
    "the end of a line": ("memcpy(line + c->end_at, line + last", "memcpy(line + c->end_at, line + 0 * last", "direct"),
    "the next line": ("next = bs_step(c, c->layer->stride_h)", "next = bs_step(c, c->layer->stride_w)", "strided"),
    "bytes of a pixel": (
        "c->grid_w, next, c->pixel_bytes, line",
        "c->grid_w, next, c->pixel_bytes - 16, line",
        "codes",
    ),
}
"""By what is wrong in bs_pack.c: its text, what takes the place of that, and a layer that it changes."""


@pytest.mark.slow
@pytest.mark.parametrize("what", PAIR_MUTANTS)
def test_a_runtime_that_merges_other_rows_is_refused(paired, tmp_path, what):
    old, new, layer = PAIR_MUTANTS[what]
    shown = verdict_of_changed(paired, tmp_path, "bs_pack.c", old, new, layer, text_of("avx2", 1))
    assert shown.verdict == "refused", shown


THREAD_MUTANTS = {
    "scratch memory of two threads": (
        "bs_depthwise.c",
        "arena + number * d->slot_bytes",
        "arena + 0 * number",
        "plain",
    ),
    "lines of two threads": (
        "bs_depthwise.c",
        "part(bands, number + 1, slots)",
        "part(bands, number + 1, slots) + (number + 1 < slots)",
        "joined",
    ),
    "lines of no thread": (
        "bs_depthwise.c",
        "from = part(bands, number, slots)",
        "from = (number > 0) + number",
        "plain",
    ),
    "a band's memory": ("bs_layer.c", "arena + number * c->view_bytes", "arena + 0 * number", "banded"),
    "a thread's memory": ("bs_layer.c", "+ slot * c->scratch_bytes", "+ 0 * slot", "direct"),
    "rows of two threads": (
        "bs_layer.c",
        "unit_part(pixels, rows, i + 1, down),",
        "pixels + 0 * unit_part(pixels, rows, i + 1, down),",
        "direct",
    ),
}
"""By what is wrong with several threads: the file, its text, what takes the place of that, and a layer."""


@pytest.mark.slow
@pytest.mark.parametrize("what", THREAD_MUTANTS)
def test_a_runtime_that_is_wrong_with_several_threads_is_refused(built, depthwise, tmp_path, what):
    file, old, new, layer = THREAD_MUTANTS[what]
    folder, text = (built, text_of("avx2")) if file == "bs_layer.c" else (depthwise, depthwise_text_of("avx2"))
    shown = verdict_of_changed(folder, tmp_path, file, old, new, layer, text)
    assert shown.verdict == "refused", shown
    assert shown.why.endswith(", with 3 threads")


def test_ranges_of_memory_overlap_if_they_have_a_byte_in_common():
    from bitsynth.network.machine_code.accesses import MemoryRanges

    rng, seen = np.random.default_rng(0), set()
    for _ in range(400):
        pairs = [[(int(x), int(n)) for x, n in rng.integers(0, (60, 5), (rng.integers(0, 5), 2))] for _ in range(2)]
        left, right = ({start + k for start, size in ranges for k in range(size)} for ranges in pairs)
        first, second = (MemoryRanges.of(ranges) for ranges in pairs)
        assert first.overlaps(second) == second.overlaps(first) == bool(left & right)
        seen.add(bool(left & right))
    assert seen == {False, True}


@pytest.mark.slow
def test_activations_of_depthwise_layers_meet_their_weights(depthwise):
    """Groups of one channel and of some, joined pixels and split lines; and the kernel, for the sizes of the calls."""
    from bitsynth.network.certificate.objects import kernels_of, prove_library

    text = depthwise_text_of("avx2")
    kernels, shown = prove_library(library_in(depthwise, None, kernels_of(text)), [text], lambda *_: None)
    assert [(each.node, each.verdict, each.why) for each in shown] == [(n, "proved", "") for n in DEPTHWISE_CASES]
    assert [each.verdict for each in kernels] == ["listed sizes"] * len(kernels)
    assert {size for each in shown for size in each.sizes if size.pixels > 1 and size.units > 1}


@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "isa"), [("clang", "avx2"), ("gcc", "avx512"), ("clang", "avx512")])
def test_depthwise_layers_by_other_compilers_are_proved(tmp_path, compiler, isa):
    text = depthwise_text_of(isa)
    shown = verdicts(build(tmp_path, text, compiler, "-O3", *text.needs.cc_flags), text)
    assert [(each.node, each.verdict, each.why) for each in shown] == [(n, "proved", "") for n in DEPTHWISE_CASES]


DEPTHWISE_MUTANTS = {
    "a line's stride": ("bs_depthwise.c", "oy * l->stride_h + ky", "oy * l->stride_w + ky", "units"),
    "a pixel's stride": ("bs_depthwise.c", "l->stride_w / d->splits", "l->stride_h / d->splits", "units"),
    "padding at the top": ("bs_depthwise.c", "ky * l->dilation_h - l->pad_top", "ky * l->dilation_h", "plain"),
    "padding at the left": (
        "bs_depthwise_lines.c",
        "line + l->pad_left * d->pixel_bytes",
        "line + 0 * l->pad_left * d->pixel_bytes",
        "plain",
    ),
    "padding's code": ("bs_depthwise.c", "(int)(l->pad_code ^", "(int)(1 + l->pad_code ^", "down"),
    "the order of taps": ("bs_depthwise.c", "bs_place_of(d, kx *", "bs_place_of(d, (l->kernel_w - 1 - kx) *", "holes"),
    "a dilated line": ("bs_depthwise.c", "+ ky * l->dilation_h -", "+ ky * l->dilation_w -", "holes"),
    "a line of a group's channel": ("bs_depthwise.c", "+ i * d->phase_bytes;", "+ 0 * i;", "twos"),
    "a channel of a group": ("bs_depthwise_lines.c", "codes >> 8 * i & first", "codes >> 0 * i & first", "twos"),
    "output channels of a group": ("bs_depthwise_lines.c", "from + i, in, 2, at", "from + i, in, 1, at", "spread"),
    "lines of the ring": (
        "bs_depthwise.c",
        "times(l->kernel_h - 1, l->dilation_h), 1)",
        "times(l->kernel_h - 2, l->dilation_h), 1)",
        "plain",
    ),
    "a line that is there": ("bs_depthwise_lines.c", "% d->lines] == y + 1)", "% d->lines] >= y)", "plain"),
    "where a split line begins": ("bs_depthwise_lines.c", "bs_place_of(d, left + x)", "bs_place_of(d, x)", "split"),
    "the last row": ("bs_depthwise.c", "oy < to; ++oy", "oy < to - (to == d->call.out.height); ++oy", "joined"),
    "weights": ("bs_depthwise.c", "        l->weights,\n", "        l->weights + 64,\n", "plain"),
    "numbers of channels": ("bs_depthwise.c", "        l->start,\n", "        l->start + 1,\n", "plain"),
    "where results go": ("bs_depthwise.c", "strip = {oy * width,", "strip = {oy * width - (oy > 2),", "codes"),
    "results that are transposed": (
        "bs_depthwise.c",
        "bs_transpose_pixels(&one, from * width, to * width)",
        "bs_transpose_pixels(&one, from * width, to * width - 1)",
        "turned",
    ),
}
"""By what is wrong: the file, its text, what takes the place of that, and a layer that it changes."""


@pytest.mark.slow
@pytest.mark.parametrize("what", DEPTHWISE_MUTANTS)
def test_a_wrong_runtime_of_depthwise_layers_is_refused(depthwise, tmp_path, what):
    file, old, new, layer = DEPTHWISE_MUTANTS[what]
    shown = verdict_of_changed(depthwise, tmp_path, file, old, new, layer, depthwise_text_of("avx2"))
    assert shown.verdict == "refused", shown


SENSELESS_COUNTS = {
    "no steps": ("        d->steps,\n        s->pointers", "        0 * d->steps,\n        s->pointers"),
    "no units": ("d->padded / l->depthwise->unit,", "0 * d->padded,"),
    "pixels beyond memory": ("l->depthwise->run(\n", "l->depthwise->run(((size_t)1 << 40) +\n"),
    "bytes beyond memory": ("    l->depthwise->run(\n", "    memset(s, 0, (size_t)1 << 40);\n    l->depthwise->run(\n"),
}
"""Changes of calls to counts that no layer has: nothing as large is made before it is refused."""


@pytest.mark.slow
@pytest.mark.parametrize("what", SENSELESS_COUNTS)
def test_senseless_counts_are_a_verdict(depthwise, tmp_path, what):
    old, new = SENSELESS_COUNTS[what]
    shown = verdict_of_changed(depthwise, tmp_path, "bs_depthwise.c", old, new, "plain", depthwise_text_of("avx2"))
    assert shown.verdict in ("refused", "not understood"), shown


def test_columns_are_decoded_as_they_were_packed():
    """Of each kernel that ships, for any codes."""
    rng = np.random.default_rng(0)
    for path in MATMUL.every():
        name, kernel = path.stem, MATMUL.read(path).kernel
        codes = rng.integers(0, 1 << kernel.column_bits, (2 * kernel.columns, 3, kernel.k_step)).astype(np.uint8)
        data = tiles(kernel, codes[..., list(packing(kernel).order)]).tobytes()
        assert np.array_equal(codes_of_columns(kernel, data, 2, 3), codes.reshape(len(codes), -1)), name


def test_where_weights_are_0_rows_count_nothing(monkeypatch):
    """That is shown, not assumed: with other weights there, rows count."""
    from bitsynth.network.machine_code import idle_weights

    for name in ("bs_mm_a8u_w8s_s32_avx2_6x16x2", "bs_mm_a8s_w8s_s32_avx512_24x16x4"):
        kernel = MatmulKernel(MATMUL.load_named(name), KernelName.parse(name).spec)
        ignores = idle_weights.ignores_rows_of_idle_weights.__wrapped__
        assert ignores(kernel)
        with monkeypatch.context() as patch:
            patch.setattr(idle_weights, "idle_code", lambda core: 3)
            assert not ignores(kernel)


def test_what_two_objects_define_is_not_linked(built):
    from bitsynth.isa.load import load
    from bitsynth.objects.declared import machine_table
    from bitsynth.objects.linked import link_objects

    paths = [built / "bs_tiles.o"] * 2
    with pytest.raises(SpecError, match="two objects have a symbol"):
        link_objects(paths, machine_table(load("avx2")), 1 << 20, ())
