"""Facts that boards report."""

import shutil
import subprocess
from contextlib import suppress

import pytest

from bitsynth.host.facts import SCRIPT, Facts
from bitsynth.isa.load import load

PI = """\
machine aarch64
bits 64
kernel Linux 6.6.31+rpt-rpi-v8
board Raspberry Pi 3 Model B Rev 1.2
processor Cortex-A53
cores 4
features fp asimd evtstrm crc32 cpuid
governor ondemand
clock_khz 600000
max_clock_khz 1200000
throttled 0x50005
temperature 71.4'C
boot 5b1f8f5e-30a5-4a1a-a2cb-4bd6cf47e6a2
"""


def test_facts_of_a_board_are_read():
    facts = Facts.parse(PI)
    assert str(facts) == (
        "Raspberry Pi 3 Model B Rev 1.2, Cortex-A53, 4 cores, 64-bit aarch64, Linux 6.6.31+rpt-rpi-v8, "
        "600 of 1200 MHz, governor ondemand, throttling: under-voltage, throttled, under-voltage since boot, "
        "throttled since boot, 71.4'C"
    )
    assert facts.emulator == ""
    assert facts.boot == "5b1f8f5e-30a5-4a1a-a2cb-4bd6cf47e6a2"
    assert facts.runs("aarch64")
    assert facts.runs("arm")
    assert not facts.runs("x86_64")
    assert facts.lacking("aarch64", ["asimd", "asimddp"]) == ["asimddp"]
    assert facts.lacking("arm", ["neon"]) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (PI, "Cortex-A53"),
        ("machine aarch64\nboard A board\nprocessor -\n", "A board"),
        ("processor AMD EPYC\nvendor AuthenticAMD\nfamily 26\nmodel 2\n", "AuthenticAMD family 26 model 2"),
        ("processor Cortex-A53\nvendor ARM\nfamily -\nmodel 4\n", "Cortex-A53"),
        ("machine aarch64\n", "aarch64"),
        ("", "unknown"),
    ],
)
def test_a_processor_has_its_kind(text, kind):
    assert Facts.parse(text).kind == kind


@pytest.mark.parametrize(
    ("word", "message"),
    [("0x0", "none"), ("0x2", "clock capped"), ("0x80000", "at the soft temperature limit since boot"), ("odd", "")],
)
def test_throttling_is_described_in_words(word, message):
    assert Facts.parse(f"throttled {word}\n").throttled == message


@pytest.mark.parametrize("text", ["", "\n", "Welcome!\n", "bits many\ncores -1\nclock_khz \n"])
def test_a_board_that_tells_nothing(text):
    assert Facts.parse(text) == Facts()
    assert str(Facts.parse(text)) == ""


def test_the_script_runs_in_a_plain_shell():
    done = subprocess.run(["sh", "-euc", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert Facts.parse(done.stdout).machine


TOOLS = ("sh", "sed", "head", "tr", "uname", "grep", "getconf")


def facts_of(machine, cpuinfo, tmp_path, lscpu="", kernel=""):
    """What the script says on a machine with such a file, and of tools only those that print what lscpu would."""
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    for name in TOOLS:
        with suppress(FileExistsError):
            (tools / name).symlink_to(shutil.which(name))
    if lscpu:
        (tools / "lscpu").write_text(f"#!/bin/sh\nprintf '%s' '{lscpu}'\n")
        (tools / "lscpu").chmod(0o755)
    (tmp_path / "arch").write_text(f"{kernel}\n" if kernel else "")
    script = SCRIPT.replace("/proc/cpuinfo", str(tmp_path / "cpuinfo")).replace(
        "/proc/sys/kernel/arch", str(tmp_path / "arch")
    )
    fake = f'uname() {{ echo "{machine}"; }}\n'
    command = ["sh", "-c", fake + script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": str(tools)})
    return Facts.parse(done.stdout)


def told(*machine, **more):
    """The facts that it reports under an emulator."""
    return facts_of(*machine, **more).emulator


ZEN = "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\n"
LSCPU = "Vendor ID:   AuthenticAMD\nModel name:   AMD EPYC\nCPU family:   26\nModel:   2\n"
A53 = "Vendor ID:   ARM\nModel name:   Cortex-A53\nModel:   4\n"


@pytest.mark.parametrize(
    ("machine", "cpuinfo", "lscpu", "kind"),
    [
        ("x86_64", ZEN * 2, "", "AuthenticAMD family 26 model 2"),
        ("x86_64", ZEN, LSCPU, "AuthenticAMD family 26 model 2"),
        ("x86_64", "", LSCPU, "AuthenticAMD family 26 model 2"),
        ("aarch64", "CPU implementer\t: 0x41\n", A53, "Cortex-A53"),
    ],
)
def test_a_kind_needs_no_lscpu(machine, cpuinfo, lscpu, kind, tmp_path):
    """As machines without util-linux have none."""
    assert facts_of(machine, cpuinfo, tmp_path, lscpu).kind == kind


def test_a_system_whose_programs_are_emulated(tmp_path):
    assert told("aarch64", "vendor_id\t: GenuineIntel\n", tmp_path) == "an emulator of programs"
    assert told("aarch64", "CPU implementer\t: 0x41\n", tmp_path) == ""
    assert told("x86_64", "vendor_id\t: GenuineIntel\n", tmp_path) == ""


PARTS = "CPU implementer\t: 0x41\nCPU part\t: {}\n\n"


def test_an_emulator_that_shows_the_files_of_an_arm_processor(tmp_path):
    """As qemu's since 8.1 do; the kernel says what it runs on itself."""
    arm = PARTS.format("0xd0b")
    assert told("aarch64", arm, tmp_path, kernel="x86_64") == "an emulator of programs"
    assert told("x86_64", "", tmp_path, kernel="aarch64") == "an emulator of programs"
    assert told("aarch64", arm, tmp_path, kernel="aarch64") == ""
    assert told("armv7l", arm, tmp_path, kernel="aarch64") == ""
    assert told("i686", "", tmp_path, kernel="x86_64") == ""


@pytest.mark.parametrize(
    ("parts", "isa", "cpu"),
    [
        (["0xd03"] * 4, "neon", "a53"),
        (["0xd08"], "neon", "a72"),
        (["0xd0b"], "neon_dotprod", "a76"),
        (["0xd0b"], "armv7_neon", "a72"),
        (["0xd08"], "neon_dotprod", ""),
        (["0xd03", "0xd08"], "neon", ""),
        (["0xfff"], "neon", ""),
        ([], "neon", ""),
    ],
)
def test_the_processor_of_a_board(parts, isa, cpu, tmp_path):
    cpuinfo = "".join(map(PARTS.format, parts))
    assert facts_of("aarch64", cpuinfo, tmp_path).cpu(load(isa).table) == cpu


@pytest.mark.parametrize(
    ("vendor", "family", "model", "isa", "cpu"),
    [
        ("AuthenticAMD", "25", "17", "avx512", "zen4"),
        ("AuthenticAMD", "25", "97", "avx2", "zen4"),
        ("AuthenticAMD", "26", "2", "avxvnni", "zen5"),
        ("AuthenticAMD", "26", "2", "avx512", "zen5"),
        ("AuthenticAMD", "26", "36", "avx512", "zen4"),
        ("AuthenticAMD", "26", "36", "avxvnni", "zen5"),
        ("AuthenticAMD", "25", "17", "avxvnni", ""),
        ("AuthenticAMD", "25", "1", "avx2", "zen4"),
        ("AuthenticAMD", "25", "17", "neon", ""),
        ("GenuineIntel", "6", "207", "avx512", "icelake"),
        ("GenuineIntel", "6", "207", "avx2", "skylake"),
        ("GenuineIntel", "6", "106", "avx512", "icelake"),
        ("GenuineIntel", "6", "85", "avx512", "skylakex"),
        ("GenuineIntel", "6", "85", "avx2", "skylake"),
        ("GenuineIntel", "6", "151", "avxvnni", ""),
        ("CentaurHauls", "7", "59", "avx2", ""),
        ("", "", "", "avx2", ""),
    ],
)
def test_the_nearest_processor_of_the_same_maker(vendor, family, model, isa, cpu):
    assert Facts(vendor=vendor, family=family, model=model).cpu(load(isa).table) == cpu


def test_the_processor_of_registers_of_cores():
    assert Facts.parse("midrs 0x00000000410fd083 0x00000000410fd083 \n").midrs == {"0x41 0xd08"}
    assert Facts.parse("midrs odd 0x410fd08x\n").midrs == frozenset()
