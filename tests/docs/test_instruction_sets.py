"""Examples of the pages on instructions and instruction sets are the files that ship, or work as they stand."""

import os
import re
import shutil

import pytest
from support.markdown_blocks import ROOT, bitsynth_commands, blocks

from bitsynth import paths
from bitsynth.cli import main
from bitsynth.errors import SpecError
from bitsynth.isa import architecture, load, tested

PAGE = ROOT / "docs" / "develop" / "add-an-instruction-set.md"
OWN, DIFFERENCE, SHIPPED = (block.text for block in blocks(PAGE, "toml"))


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """The folder `sets` of the page, named by BITSYNTH_ISA."""
    folder = tmp_path / "sets" / "neonplus"
    folder.mkdir(parents=True)
    (folder / "isa.toml").write_text(OWN, encoding="utf-8")
    (folder / "difference.toml").write_text(DIFFERENCE, encoding="utf-8")
    monkeypatch.setenv("BITSYNTH_ISA", str(tmp_path / "sets"))
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    tested._digests.cache_clear()
    yield tmp_path / "sets"
    tested._digests.cache_clear()


def test_the_example_of_an_instruction_is_the_one_that_ships():
    (example,) = blocks(ROOT / "docs" / "develop" / "add-an-instruction.md", "toml")
    assert example.text in (ROOT / "isa_specs" / "avx2" / "permute.toml").read_text(encoding="utf-8")


def test_the_example_of_a_set_with_features_is_the_one_that_ships():
    assert (ROOT / "isa_specs" / "avxvnni" / "isa.toml").read_text(encoding="utf-8") == SHIPPED


def test_a_set_of_the_users_has_what_it_extends_and_its_own(sets):
    assert load.names()[-1] == "neonplus"
    isa = load.load("neonplus")
    assert isa.instrs.keys() - load.load("neon").instrs.keys() == {"uabd.u8x16", "uabd.u16x8"}
    assert list(isa.table.cpu) == ["a53", "a72"]
    assert paths.isa_folder("neonplus") == sets / "neonplus"


def test_instructions_of_the_users_are_refused_until_they_are_tested(sets):
    isa = load.load("neonplus")
    with pytest.raises(SpecError, match="bitsynth isa check neonplus --bless"):
        tested.require_tested([isa["uabd.u8x16"]])
    assert tested.record("neonplus", "a test", {"uabd.u8x16": isa["uabd.u8x16"].digest}).parent == sets / "neonplus"
    tested.require_tested([isa["uabd.u8x16"]])


def test_an_unset_variable_names_no_folder(sets, monkeypatch):
    monkeypatch.setenv("BITSYNTH_ISA", os.pathsep)
    assert "neonplus" not in load.names()
    with pytest.raises(SpecError, match="unknown instruction set 'neonplus'"):
        load.load("neonplus")


def test_the_shipped_folder_may_be_named_too(sets, monkeypatch):
    monkeypatch.setenv("BITSYNTH_ISA", os.pathsep.join((str(paths.isa_specs()), str(sets))))
    assert load.names()[-1] == "neonplus"
    assert "aarch64" in architecture.load_architectures()


def test_a_folder_without_sets_is_refused(sets, monkeypatch):
    monkeypatch.setenv("BITSYNTH_ISA", str(sets / "neonplus"))
    with pytest.raises(SpecError, match=r"BITSYNTH_ISA: .*neonplus holds no instruction set; want a folder in it"):
        load.names()


def test_two_sets_of_one_name_are_refused(sets):
    (sets / "neon").mkdir()
    shutil.copy(paths.isa_specs() / "neon" / "isa.toml", sets / "neon")
    with pytest.raises(SpecError, match="is also called neon; give one of them another name"):
        load.names()


def test_an_architecture_of_the_users(sets):
    text = paths.architectures().read_text(encoding="utf-8")
    (table,) = re.findall(r"^\[arm\]\n.*?(?=^\[)", text, re.MULTILINE | re.DOTALL)
    (sets / "architectures.toml").write_text(table.replace("[arm]", "[armboard]"), encoding="utf-8")
    for file in paths.isa_specs().glob("*.c"):
        shutil.copy(file, sets)
    assert architecture.find_architecture("armboard").probe_text() == architecture.find_architecture("arm").probe_text()
    assert architecture.find_architecture("armboard").probe == str(sets / architecture.find_architecture("arm").probe)


def test_an_architecture_is_declared_once(sets):
    shutil.copy(paths.architectures(), sets)
    for file in paths.isa_specs().glob("*.c"):
        shutil.copy(file, sets)
    with pytest.raises(SpecError, match="another file declares an architecture of that name"):
        architecture.load_architectures()


@pytest.mark.slow
@pytest.mark.toolchains
def test_the_commands_of_the_page_work(sets, capsys):
    for words in [words for block in blocks(PAGE, "sh") for words in bitsynth_commands(block)]:
        assert main(words) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "checked     316 of 316 forms as declared" in out
    assert "bs_mm_a1u_w1b_s32_neonplus_" in out


@pytest.mark.parametrize("command", [["list", "--json"], ["verify", "bs_mm_a2u_w1b_s32_avx2_4x8x32"]])
def test_a_folder_without_sets_is_one_message_and_no_fault_of_kernels(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BITSYNTH_ISA", str(tmp_path))
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"error: BITSYNTH_ISA: {tmp_path} holds no instruction set")
    assert err.count("BITSYNTH_ISA") == 1
