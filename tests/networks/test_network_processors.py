"""One network for several processors: the library of each, its certificate, and the choice among them."""

import hashlib
import json

import pytest
from support.cmake_builds import CHOICES, choosing
from support.onnx_files import small

from bitsynth.errors import Refuted, SpecError
from bitsynth.files import MARK, write_texts
from bitsynth.network import processors
from bitsynth.network.certificate import digest
from bitsynth.network.certificate.processors import certificates_of, processors_certificate
from bitsynth.network.compiling import compile

CPUS = ("a76", "a72", "a53")
APP = """
#include "net.h"
#include <stdio.h>
#include <string.h>

static float x[net_input_elements], y[3][net_output_0_elements], m[3][net_output_1_elements];

int main(void)
{
    static const char *const names[5] = { "a53", "a72", "a76", "z80", "" };
    static char arena[1 << 20];
    printf("%s", net_processor());
    for (int i = 0; i < net_input_elements; ++i)
        x[i] = (float)(i % 5) / 4;
    for (int i = 0; i < 5; ++i) {
        const int status = net_use(names[i]), k = i < 3 ? i : 0;
        if (net_arena_bytes(1) > sizeof arena || net_run(x, y[k], m[k], arena, sizeof arena, NULL) != net_OK)
            return 1;
        if (memcmp(y[0], y[k], sizeof y[0]) || memcmp(m[0], m[k], sizeof m[0]))
            return 2;
        printf(", %d %s", status, net_processor());
    }
    puts("");
    return 0;
}
"""


@pytest.fixture(scope="module")
def by_cpu():
    return processors.networks(small(), CPUS, isa="neon")


@pytest.mark.slow
def test_each_is_as_if_compiled_for_it_alone(by_cpu):
    assert {cpu: (net.program.isa, net.program.cpu) for cpu, net in by_cpu.items()} == {
        "a76": ("neon_dotprod", "a76"),
        "a72": ("neon", "a72"),
        "a53": ("neon", "a53"),
    }
    alone = compile(small(), isa="neon", cpu="a72").files("net_a72")
    files = processors.files("net", by_cpu)
    assert {n: files[f"net_a72/{n}"] for n in alone} == alone
    assert all(MARK in str(text)[:200] for text in files.values())
    assert "chosen    at run time: a76, a72, a53" in files["net.h"]


@pytest.mark.slow
def test_every_library_is_verified(by_cpu, tmp_path, ended):
    write_texts(tmp_path, processors.files("net", by_cpu))
    out, _ = ended(0, "verify", str(tmp_path), "--no-z3")
    assert [line.split()[1] for line in out.splitlines() if line.startswith("network")] == [
        "net_a76",
        "net_a72",
        "net_a53",
    ]
    facts = json.loads(ended(0, "verify", str(tmp_path), "--no-z3", "--json")[0])["networks"]
    assert [x["cpu"] for x in facts] == ["a76", "a72", "a53"]
    path = tmp_path / "net_a72" / "net_a72.c"
    path.write_text(path.read_text() + "\n")
    assert "net_a72.c was changed" in ended(1, "verify", str(tmp_path), "--no-z3")[1]
    (tmp_path / "net_selftest.c").unlink()
    assert "there is no file net_selftest.c" in ended(1, "verify", str(tmp_path), "--no-z3")[1]


@pytest.mark.slow
def test_the_choice_is_that_among_networks_of_the_file(by_cpu, tmp_path, ended):
    """A choice whose certificate somebody wrote again is refused."""
    file, out = tmp_path / "net.onnx", tmp_path / "out"
    file.write_bytes(small().SerializeToString())
    files = processors.files("net", by_cpu)
    write_texts(out, files)
    given = "verify", str(out), "--no-z3", "--model", str(file)
    assert "is that among these networks" in ended(0, *given)[0]
    (out / "net.c").write_text("/* chooses otherwise */\n")
    path = out / "net.certificate.json"
    fields = json.loads(path.read_text())
    fields["files"]["net.c"] = hashlib.sha256((out / "net.c").read_bytes()).hexdigest()
    path.write_text(json.dumps({**fields, "digest": digest(fields)}))
    assert "files/net.c is not what" in ended(1, *given)[1]
    assert "net.c is not the C around its networks" in ended(1, "verify", str(out), "--no-z3")[1]


@pytest.mark.slow
def test_what_was_compiled_last_is_verified(by_cpu, tmp_path, ended):
    """One network, then some processors', then fewer, then one again, in one folder."""
    alone = by_cpu["a72"].files("net")
    some = [{cpu: by_cpu[cpu] for cpu in cpus} for cpus in (CPUS, CPUS[1:])]
    for files in (alone, *(processors.files("net", each) for each in some), alone):
        write_texts(tmp_path, files)
        fields = json.loads(ended(0, "verify", str(tmp_path), "--no-z3", "--json")[0])
        assert len(fields.get("networks", [fields])) == sum(name.endswith("_check.py") for name in files)


@pytest.mark.parametrize(
    ("isa", "cpus", "message"),
    [
        ("neon", "a53,z80", "unknown cpu 'z80', or named twice; neon, neon_dotprod know a53, a72, a76"),
        ("neon", "a53,a53", "unknown cpu 'a53', or named twice"),
        ("neon", "a53,zen5", "unknown cpu 'zen5', or named twice"),
        ("neon", "a53,", "unknown cpu '', or named twice"),
        ("avx2", "zen5,zen4", "cannot ask which processor it is"),
    ],
)
def test_what_the_command_refuses(isa, cpus, message, tmp_path, ended):
    (tmp_path / "net.onnx").write_bytes(small().SerializeToString())
    _, err = ended(2, "compile", str(tmp_path / "net.onnx"), "--isa", isa, "--cpu", cpus, "-o", str(tmp_path / "out"))
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_several_are_given_as_several():
    with pytest.raises(SpecError, match="want several processors"):
        processors.networks(small(), "a72,a53", isa="neon")


def test_the_command_takes_several(tmp_path, ended):
    (tmp_path / "net.onnx").write_bytes(small().SerializeToString())
    given = ["compile", str(tmp_path / "net.onnx"), "--isa", "neon", "--cpu", "a72,a76", "-o", str(tmp_path / "out")]
    assert list(json.loads(ended(0, *given, "--json")[0])["processors"]) == ["a72", "a76"]
    assert (tmp_path / "out" / "net_a76" / "net_a76.certificate.json").is_file()


AROUND = {
    "net.c": "chooses",
    "net_x/net_x.certificate.json": "{}",
    "net_y/net_y.certificate.json": "[]",
    "net_x/a.c": "",
}
CERTIFICATES = {cpu: f"net_{cpu}/net_{cpu}.certificate.json" for cpu in "xy"}
TAMPERED = {
    "what chooses": ("net.c", "chooses otherwise", "net.c was changed"),
    "no choice": ("net.c", None, "there is no file net.c"),
    "a certificate": ("net_x/net_x.certificate.json", "{ }", "net_x.certificate.json was changed"),
    "no certificate": ("net_y/net_y.certificate.json", None, "there is no file net_y/net_y.certificate.json"),
}


def bound(tmp_path, certificates=CERTIFICATES, **more):
    """A folder of a library for processors x and y, and its certificate."""
    write_texts(tmp_path, {**AROUND, **processors_certificate("net", certificates, AROUND | more)})
    return tmp_path / "net.certificate.json"


def test_a_certificate_holds_those_of_processors_together(tmp_path):
    path = bound(tmp_path)
    (tmp_path / "net_z").mkdir()
    (tmp_path / "net_z" / "net_z.certificate.json").write_text("left there by another call")
    assert certificates_of(path) == [tmp_path / place for place in CERTIFICATES.values()]


@pytest.mark.parametrize("case", TAMPERED)
def test_what_lies_around_processors_is_as_it_was_written(case, tmp_path):
    path, (name, text, message) = bound(tmp_path), TAMPERED[case]
    (tmp_path / name).unlink()
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(Refuted, match=message):
        certificates_of(path)


def test_a_certificate_of_processors_is_not_believed(tmp_path):
    (tmp_path / "far").write_text("")
    for certificates, more, word in (
        ({}, {}, "nothing of any processor"),
        ({"x": "net_x/a.c", "y": "net.h"}, {}, "nothing of net.h"),
        ({"x": "../far"}, {"../far": ""}, "there is no file ../far"),
    ):
        with pytest.raises(Refuted, match=word):
            certificates_of(bound(tmp_path / "net", certificates, **more))
    path = bound(tmp_path / "net")
    path.write_text(path.read_text().replace('"x"', '"w"'))
    with pytest.raises(Refuted, match="the certificate was changed"):
        certificates_of(path)
    path.write_text('{"format": 2, "processors": 3}')
    with pytest.raises(SpecError, match="no certificate of this version"):
        certificates_of(path)


@pytest.mark.slow
@pytest.mark.toolchains
def test_the_processor_it_runs_on_decides(by_cpu, tmp_path):
    """Under an emulator of each; the self-test is of all that it can run, and all give the same."""
    write_texts(tmp_path / "net", processors.files("net", by_cpu, weights_file=True))
    choosing(tmp_path, "net", APP, CHOICES)
