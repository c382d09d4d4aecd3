"""Files of elementwise programs that are damaged or forged: one line, and its exit code."""

import json

import msgspec
import pytest
from support.programs import change, lines

from bitsynth import paths
from bitsynth.cli import main
from bitsynth.isa.step import to_json
from bitsynth.proof.elementwise.rules import statements
from bitsynth.store.elementwise import ELEMENTWISE

NAME = "greatest_avx2"
LIST = ["list", "--isa", "avx2", "--variant", "elementwise", "--json"]


@pytest.fixture
def stored(user, monkeypatch):
    """The shipped program in the user's folder, to be broken, and alone in lists."""
    path = user / "avx2" / ELEMENTWISE.name / f"{NAME}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes((paths.shipped_kernels() / "avx2" / ELEMENTWISE.name / path.name).read_bytes())
    monkeypatch.setattr(ELEMENTWISE, "every", lambda: iter([path]))
    return path


def listed(capsys, *more):
    """What `bitsynth list` says of the file, and its warnings."""
    assert main([*LIST, *more]) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)
    return row, err


def forge(path):
    """Make it a program of the lesser of two bytes, whose record and digest fit."""
    entry = ELEMENTWISE.read(path)
    lesser = tuple(line.replace("max.", "min.") for line in lines(entry.program.steps))
    program = change(entry.program, program=lesser)
    replaced = msgspec.structs.replace(entry, program=program, statements=statements(program))
    path.write_bytes(to_json(replaced.with_digest()))


def damage(path):
    path.write_bytes(path.read_bytes().replace(b"max.", b"min."))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-9])


SAID = {
    forge: f"the certificate does not check: {NAME}: channel",
    damage: "was edited or damaged",
    truncate: "is not an elementwise program of this version",
}


@pytest.mark.parametrize("change", SAID, ids=lambda f: f.__name__)
def test_a_broken_program_is_refused_in_a_line(stored, fails, capsys, change):
    change(stored)
    for argv in (["show", NAME], ["show", NAME, "--c"], ["verify", NAME]):
        assert SAID[change] in fails(2, *argv)
    row, err = listed(capsys, "--check")
    assert SAID[change] in row["problem"]
    assert err.startswith("warning: ")
    assert err.count("\n") == 1


def test_a_sound_program_has_no_problem(stored, capsys):
    row, err = listed(capsys, "--check")
    assert (row["problem"], row["from"], err) == (None, "user", "")
