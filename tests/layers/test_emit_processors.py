"""One layer for several processors: the layer of each, and the choice among them where the C runs."""

import numpy as np
import pytest
from support.cmake_builds import CHOICES, choosing

from bitsynth.cli import main
from bitsynth.errors import SpecError
from bitsynth.files import MARK, write_texts
from bitsynth.layers import Conv2d, Thresholds, processors

CPUS = ("a76", "a72", "a53")
W = np.random.default_rng(0).choice([-1, 1], (64, 64, 3, 3))
LEVELS = np.sort(np.random.default_rng(1).integers(-40, 60, (64, 3)), axis=1)
APP = """
#include "conv.h"
#include <stdio.h>

int main(void)
{
    static const char *const names[5] = { "a53", "a72", "a76", "z80", "" };
    printf("%s", conv_processor());
    for (int i = 0; i < 5; ++i) {
        const int status = conv_use(names[i]);
        printf(", %d %s", status, conv_processor());
    }
    puts("");
    return 0;
}
"""


def made(*cpus, isa="neon", act_bits=2, w=W, **options):
    return processors.layers(
        lambda set_, cpu: Conv2d(w, act_bits, 1, padding=1, isa=set_, cpu=cpu, **options), isa, cpus
    )


def test_each_has_the_best_set_that_names_it():
    found = made(*CPUS)
    assert {cpu: layer.plan.cpu for cpu, layer in found.items()} == {cpu: cpu for cpu in CPUS}
    assert {cpu: layer.plan.isa for cpu, layer in found.items()} == {
        "a76": "neon_dotprod",
        "a72": "neon",
        "a53": "neon",
    }
    assert found["a53"].kernel.entry.kernel.order == "a53"


def test_files_of_each_are_apart():
    files = processors.files("conv", made(*CPUS))
    assert all(MARK in text.splitlines()[0] for text in files.values())
    for cpu in CPUS:
        assert f"conv_{cpu}/conv_{cpu}.c" in files
        assert f"conv_{cpu}/main.c" not in files
    assert "chosen    at run time: a76, a72, a53" in files["conv.h"]
    assert files["CMakeLists.txt"].count("bs_pool.c") == 1


def test_layers_that_are_alike_are_there_once():
    found = made("a72", "a53")
    found["a53"] = found["a72"]
    files = processors.files("conv", found)
    assert {name.partition("/")[0] for name in files if "/" in name} == {"conv_a72"}
    assert '{"a72", 0}' in (text := files["conv.c"].replace("{ ", "{").replace(" }", "}"))
    assert '{"a53", 0}' in text


@pytest.mark.parametrize(
    ("isa", "cpus", "message"),
    [
        ("neon", ("a53", "z80"), "unknown cpu 'z80'.* know a53, a72, a76"),
        ("neon", ("a53", "a53"), "'a53', or named twice"),
        ("avx2", ("zen5", "a53"), "unknown cpu 'a53'"),
    ],
)
def test_processors_that_no_set_names(isa, cpus, message):
    with pytest.raises(SpecError, match=message):
        made(*cpus, isa=isa)


@pytest.mark.parametrize(("isa", "cpus"), [("avx2", ("zen5", "icelake")), ("armv7_neon", ("a53", "a72"))])
def test_programs_that_cannot_ask_choose_nothing(isa, cpus):
    with pytest.raises(SpecError, match="cannot ask which processor it is"):
        processors.files("conv", made(*cpus, isa=isa))


@pytest.mark.parametrize("name", ["", "my-layer", "bs"])
def test_a_bad_name_is_said_as_it_was_given(name):
    with pytest.raises(SpecError, match=f"cannot be named '{name}'"):
        processors.files(name, made("a72", "a53"))


@pytest.mark.slow
@pytest.mark.toolchains
def test_the_processor_it_runs_on_decides(tmp_path):
    """Under an emulator of each; the self-test is of all that it can run."""
    packed = made(*CPUS, layout="packed", epilogue=Thresholds(LEVELS))
    write_texts(tmp_path / "conv", processors.files("conv", packed))
    choosing(tmp_path, "conv", APP, CHOICES)


@pytest.mark.slow
def test_the_command_takes_several(tmp_path, capsys):
    np.save(tmp_path / "w.npy", W)
    argv = [str(tmp_path / "w.npy"), "--act-bits", "1", "--w-bits", "1", "--isa", "neon", "--name", "conv"]
    assert main(["emit-layer", *argv, "--cpu", "a72,a53", "-o", str(tmp_path / "out"), "--json"]) == 0
    assert '"kernels": {' in capsys.readouterr().out
    assert (tmp_path / "out" / "conv_a53" / "conv_a53.h").is_file()
