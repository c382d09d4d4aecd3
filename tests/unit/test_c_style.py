"""All C is laid out as .clang-format says: the runtime's, the examples', and what is emitted."""

import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from support.onnx_files import small
from support.solved_kernels import REPRESENTATIVE, kernel, name, on_record, spec_of

from bitsynth import paths
from bitsynth.emit.kernel import CSource
from bitsynth.emit.render import WIDTH, lay_out
from bitsynth.files import write_texts
from bitsynth.layers import Conv2d, Requantize, Scale, Thresholds, processors
from bitsynth.network import processors as network_processors
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec

ROOT = Path(__file__).parents[2]
CLANG_FORMAT = Path(sysconfig.get_path("scripts")) / "clang-format"


def changes(files):
    """What clang-format would change in these C files."""
    style = f"--style=file:{ROOT / '.clang-format'}"
    command = [str(CLANG_FORMAT), style, "--dry-run", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_the_runtime():
    assert changes(sorted(paths.runtime().glob("*.[ch]"))) == ""


def test_the_examples():
    assert changes(sorted((ROOT / "examples").glob("*/*.c"))) == ""


def test_emitted_files():
    assert changes(sorted((ROOT / "tests" / "golden").glob("*/*.[ch]"))) == ""


def test_a_change_is_seen(tmp_path):
    (tmp_path / "wide.c").write_text("int   wide;\n")
    assert "wide.c:1:4" in changes([tmp_path / "wide.c"])


def test_no_string_is_broken():
    lines = lay_out(f'    printf("step %zu, (%s: \\", %s\\n", step, {"n" * 60}(step), digests[i].edge);').split("\n")
    assert [line.strip() for line in lines] == [
        "printf(",
        '"step %zu, (%s: \\", %s\\n",',
        "step,",
        f"{'n' * 60}(step),",
        "digests[i].edge);",
    ]


def forms(config):
    """The C of a kernel, with planes apart, unrolled, of few rows; under encodings without and with an offset."""
    isa, _, act_bits, w_bits = config
    signed = MatmulOperand(act_bits, Encoding.SIGNED), MatmulOperand(w_bits, Encoding.SIGNED)
    found = kernel(*config)
    for form in ({}, {"bit_axis": "outer"}, {"unroll": 4}, {"rows": found.together}):
        replaced = msgspec.structs.replace(found, **form)
        if replaced.bit_axis in replaced.bit_axes:
            for spec in (spec_of(isa, act_bits, w_bits), MatmulSpec(isa, *signed)):
                yield CSource(on_record(replaced), spec)


@pytest.mark.slow
@pytest.mark.parametrize("config", REPRESENTATIVE, ids=name)
def test_every_method_and_form(config, tmp_path):
    for number, source in enumerate(forms(config)):
        for file, text in source.files.items():
            (tmp_path / f"{number}_{file}").write_text(text)
            assert max(map(len, text.splitlines())) <= WIDTH
    assert changes(sorted(tmp_path.iterdir())) == ""


LEVELS = Thresholds(np.array([[-20, 0, 20]] * 10))
LAYERS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "packed": ((10, 7, 3, 3), {"layout": "packed", "epilogue": LEVELS, "padding": 1}),
    "channels first": ((10, 7, 3, 3), {"layout": "NCHW", "out_layout": "NCHW", "act_encoding": "bipolar", "stride": 2}),
    "floats": ((10, 7, 1, 1), {"epilogue": Scale(np.full(10, 0.1), np.full(10, -0.1))}),
    "scaled": ((10, 70, 3, 3), {"epilogue": Requantize(np.arange(1, 11), 7, 3)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("called", ["conv1", "a" * 64], ids=len)
@pytest.mark.parametrize("case", LAYERS)
def test_layers(case, called, tmp_path):
    shape, options = LAYERS[case]
    Conv2d(np.resize([1, -1, -1], shape), 2, 1, **options).emit(tmp_path, called)
    assert changes(sorted(tmp_path.glob("*.[ch]"))) == ""


@pytest.mark.slow
@pytest.mark.parametrize("called", ["conv1", "a" * 60], ids=len)
def test_layers_of_several_processors(called, tmp_path):
    shape, options = LAYERS["packed"]
    layers = processors.layers(
        lambda isa, cpu: Conv2d(np.resize([1, -1, -1], shape), 2, 1, isa=isa, cpu=cpu, **options),
        "neon",
        ["a72", "a53"],
    )
    write_texts(tmp_path, processors.files(called, layers))
    assert changes([*tmp_path.glob("*.[ch]"), *tmp_path.glob(f"*/{called}*.[ch]")]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("called", ["net", "a" * 60], ids=len)
def test_what_chooses_among_networks_of_processors(called, tmp_path):
    networks = network_processors.networks(small(), ["a72", "a76"], isa="neon")
    write_texts(tmp_path, network_processors.files(called, networks))
    assert changes(sorted(tmp_path.glob(f"{called}*.[ch]"))) == ""
