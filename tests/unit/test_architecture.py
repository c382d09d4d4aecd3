"""The file of architectures, what is wrong in it, and instruction sets that no Python knows."""

import shutil
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from bitsynth import paths
from bitsynth.cli import main
from bitsynth.conformance import check
from bitsynth.errors import SpecError, ToolError
from bitsynth.host import features
from bitsynth.isa import architecture, load, tested
from bitsynth.run.runner import runner_for
from bitsynth.toolchain import compiler as compilers

pytestmark = pytest.mark.toolchains

SHIPPED = paths.isa_specs()


@pytest.fixture
def specs(tmp_path, monkeypatch):
    """An empty folder of instruction sets in the place of the shipped one."""
    monkeypatch.setattr(paths, "isa_specs", lambda: tmp_path)
    for cached in (load._load, tested._digests):
        cached.cache_clear()
    yield tmp_path
    for cached in (load._load, tested._digests):
        cached.cache_clear()


def copied(specs, name, **changes):
    """A copy of the instruction set `name` as `mine`, fields of its isa.toml changed."""
    shutil.copytree(SHIPPED / name, specs / "mine", ignore=shutil.ignore_patterns("*.json"))
    path = specs / "mine" / "isa.toml"
    lines = path.read_text().splitlines()
    for key, value in {"name": "mine", **changes}.items():
        at = next(k for k, line in enumerate(lines) if line.startswith(f"{key} = "))
        lines[at] = f'{key} = "{value}"'
    path.write_text("\n".join(lines))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in load.names() if not load.load(n).table.extends])
def test_a_new_set_takes_no_python(specs, name):
    old = load.load_folder(SHIPPED / name)
    copied(specs, name)
    assert load.names() == ["mine"]
    isa = load.load("mine")
    assert list(isa.instrs) == list(old.instrs)
    try:
        compilers.probe(isa, compilers.get_preferred(isa))
        tables = {n.rpartition(".")[0]: n for n, i in isa.instrs.items() if len(i.imms) <= 32}
        report = check.check_isa(isa, forms=list(tables.values()))
    except ToolError as error:
        pytest.skip(str(error))
    assert (report.isa, report.failures) == ("mine", ())
    assert not any(map(tested.is_tested, isa.instrs.values()))


def test_a_set_can_be_blessed(specs, capsys):
    copied(specs, "neon")
    for path in (specs / "mine").glob("*.toml"):
        if path.name not in ("isa.toml", "bitwise.toml"):
            path.unlink()
    assert main(["isa", "check", "mine", "--bless"]) == 0
    assert "checked     14 of 14 forms as declared" in capsys.readouterr().out
    tested.require_tested(load.load("mine").instrs.values())


def test_an_unknown_architecture(specs, capsys):
    copied(specs, "neon", arch="riscv64")
    with pytest.raises(SpecError) as error:
        load.load("mine")
    assert str(error.value).startswith(f"{specs / 'mine' / 'isa.toml'}: arch is 'riscv64'; known: x86_64, aarch64, arm")
    assert main(["isa", "show", "mine"]) == 2
    assert "arch is 'riscv64'" in capsys.readouterr().err
    with pytest.raises(SpecError, match=r"unknown arch 'riscv64'; .*architectures\.toml has x86_64, aarch64, arm"):
        architecture.find_architecture("riscv64")


def test_an_architecture_without_an_emulator(specs, monkeypatch, tmp_path):
    copied(specs, "avx2")
    monkeypatch.setenv("BITSYNTH_RUNNER", "qemu")
    with pytest.raises(ToolError, match=r"no emulator for mine \(x86_64\): unset BITSYNTH_RUNNER"):
        runner_for(load.load("mine"), tmp_path / "x.so")


def test_this_machine_has_an_architecture(monkeypatch):
    def here(machine, bits):
        features.arch.cache_clear()
        monkeypatch.setattr("platform.machine", lambda: machine)
        monkeypatch.setattr("sys.maxsize", (1 << bits - 1) - 1)
        return features.arch()

    try:
        assert here("AMD64", 64) == "x86_64"
        assert here("arm64", 64) == "aarch64"
        assert here("aarch64", 32) == here("armv7l", 32) == "arm"
        assert here("riscv64", 64) == "riscv64"
    finally:
        monkeypatch.undo()
        features.arch.cache_clear()


CPUINFO = {
    "processor : 0\nFeatures : fp asimdhp\n\nprocessor : 1\nFeatures : fp\n": {"fp", "asimd", "asimddp"},
    "processor : 0\nflags : fpu avx2\n": {"asimd", "asimddp"},
    "": {"asimd", "asimddp"},
}


@pytest.mark.parametrize(("text", "found"), CPUINFO.items(), ids=["listed", "of the host of an emulator", "nothing"])
def test_features_of_an_arm_processor(monkeypatch, tmp_path, text, found):
    """What AT_HWCAP tells is so, whatever /proc/cpuinfo lists."""
    (tmp_path / "cpuinfo").write_text(text)
    facts = {16: 1 << 1 | 1 << 20 | 1 << 5}
    monkeypatch.setattr("ctypes.CDLL", lambda name: SimpleNamespace(getauxval=Mock(side_effect=facts.get)))
    monkeypatch.setattr(features, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(features, "arch", lambda: "aarch64")
    assert features._linux_features() == found


@pytest.mark.parametrize("isa", load.names())
def test_bits_of_hwcap_are_those_that_emitted_c_asks_for(isa):
    table = load.load(isa).table
    for name, bit in architecture.find_architecture(table.arch).hwcap.items():
        assert table.probes.get(name, f"has({bit})") == f"has({bit})"


def test_the_processor_to_emulate():
    cpus = {"-march=armv8-a": "old", "": "max"}
    assert architecture.emulated_cpu(cpus, ["-O2", "-march=armv8-a"]) == "old"
    assert architecture.emulated_cpu(cpus, ["-march=armv8-a", "-march=armv8.2-a+dotprod"]) == "max"
    assert architecture.emulated_cpu(cpus, []) == "max"


BROKEN = {
    ("bits = 32", "bits = 31"): "arm: bits is 31; want 32 or 64",
    ("bits = 32", 'bits = "32"'): "Expected `int`, got `str`",
    ("bits = 32", "bits = 32\nwords = 1"): "unknown field `words`",
    ("bits = 32\n", ""): "missing required field `bits`",
    ("region = 0x1000_0000", "region = 0x2000_0000"): "arm: emulator: region is 0x20000000; 16 of them",
    ("region = 0x1000_0000", "region = 0"): "arm: emulator: region is 0x0",
    ('programs = ["qemu-arm", "qemu-arm-static"]', "programs = []"): "want one or more of qemu.programs",
    ('"" = "UC_CPU_ARM_MAX"', '"-x" = "y"'): 'want an entry "" in qemu.cpu and unicorn.cpu',
    ('probe = "cpuid.c"', 'probe = "none.c"'): "x86_64: probe is 'none.c'; want a file next to this one",
    ('probe = "cpuid.c"\n', ""): "missing required field `probe`",
    ("[arm]", "[arm"): "",
}


@pytest.mark.parametrize(("change", "why"), BROKEN.items())
def test_a_wrong_file_is_named(tmp_path, change, why):
    old, new = change
    text = paths.architectures().read_text()
    assert old in text
    for probe in SHIPPED.glob("*.c"):
        shutil.copy(probe, tmp_path)
    path = tmp_path / "architectures.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(SpecError) as error:
        architecture.read(path)
    assert str(error.value).startswith(str(path))
    assert why in str(error.value)


def test_no_file(tmp_path):
    with pytest.raises(SpecError, match=r"architectures\.toml is missing"):
        architecture.read(tmp_path / "architectures.toml")
