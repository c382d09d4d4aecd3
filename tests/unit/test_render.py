"""Templates are compiled once, as modules are, and rendered the same whatever became of what was kept."""

import sys

import pytest

from bitsynth.emit import render


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Templates of two lines in a folder of their own, as a new process finds them."""
    monkeypatch.setattr(render, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "one.j2").write_text("a {{ b }}\nc\n")

    def rendered():
        render.environment.cache_clear()
        return render.render("one.j2", {"b": 1})

    yield rendered
    render.environment.cache_clear()


def kept(folder):
    return list((folder / "__pycache__").glob("*")) if (folder / "__pycache__").is_dir() else []


def test_what_is_compiled_is_kept_and_follows_the_text(fresh, tmp_path):
    assert fresh() == fresh() == "a 1\nc\n"
    assert len(kept(tmp_path)) == 1
    (tmp_path / "one.j2").write_text("d\n")
    assert fresh() == "d\n"


@pytest.mark.parametrize("content", [b"", b"nonsense", None], ids=["empty", "nonsense", "cut"])
def test_what_is_damaged_is_compiled_again(fresh, tmp_path, content):
    fresh()
    (path,) = kept(tmp_path)
    path.write_bytes(path.read_bytes()[:-9] if content is None else content)
    assert fresh() == "a 1\nc\n"


def test_nothing_is_kept_where_python_keeps_nothing(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert fresh() == "a 1\nc\n"
    assert not kept(tmp_path)


def test_a_folder_that_cannot_be_written_to(fresh, tmp_path):
    (tmp_path / "__pycache__").symlink_to(tmp_path / "nowhere")
    assert fresh() == "a 1\nc\n"
