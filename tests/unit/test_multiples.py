"""Flushes that add a multiple: shown before C is written, whatever their shape; what is wrong is refused."""

from functools import partial
from pathlib import Path

import pytest
from support.programs import change
from support.solved_kernels import REPRESENTATIVE, kernel, name

from bitsynth import paths
from bitsynth.errors import BitsynthError, Refuted
from bitsynth.isa.load import load
from bitsynth.isa.value import Role
from bitsynth.kernel.in_order import pipelining
from bitsynth.kernel.scaled import scale_flushes
from bitsynth.kernel.wellformed import check_shape
from bitsynth.proof import multiples
from bitsynth.store.matmul import MATMUL


@pytest.mark.parametrize("doublings", [1, 2])
@pytest.mark.parametrize("config", REPRESENTATIVE, ids=name)
def test_flushes_add_the_multiple(config, doublings):
    found = kernel(*config)
    result, _ = multiples.make_checked_multiple(found, doublings)
    check_shape(load(found.isa), result)
    assert [p.loops for p in result.passes] == [p.loops for p in found.passes]
    assert any(p.flush != q.flush for p, q in zip(result.passes, found.passes, strict=True)) or (
        result.constants != found.constants
    )


@pytest.mark.slow
@pytest.mark.parametrize("isa", sorted(x.name for x in paths.shipped_kernels().iterdir()))
def test_flushes_of_all_that_ships_add_the_multiple(isa):
    checked = 0
    for path in sorted(paths.shipped_kernels().glob(f"{isa}/*/bs_mm_*.json")):
        multiples.make_checked_multiple(MATMUL.read(Path(path)).kernel, 1)
        checked += 1
    assert checked > (1 if load(isa).table.matrices else 20)


def without_a_line(isa, found, doublings, *, line):
    """A flush that lacks a line of the scaled one."""
    scaled = scale_flushes(isa, found, doublings)
    last = scaled.passes[-1]
    return change(scaled, passes=(*scaled.passes[:-1], change(last, flush=last.flush[:line] + last.flush[line + 1 :])))


def test_an_order_that_adds_the_terms_of_rows_once_is_refused(monkeypatch):
    found, right = change(kernel("neon", "lookup", 2, 1), order="a53", rows=3), pipelining.order_fold

    def once(isa, of, flat):
        twice = {s.dst: s.args[0] for s in flat.steps if s.dst.role is Role.TERM and s.args}
        lines = (change(s, args=tuple(twice.get(a, a) for a in s.args)) for s in right(isa, of, flat))
        return tuple(s for s in lines if s.dst not in twice)

    multiples.make_checked_multiple.__wrapped__(found, 1)
    monkeypatch.setattr(pipelining, "order_fold", once)
    with pytest.raises(Refuted, match="fold or a flush"):
        multiples.make_checked_multiple.__wrapped__(found, 1)


def only_once(isa, found, doublings):
    return scale_flushes(isa, found, doublings - 1)


@pytest.mark.parametrize("config", REPRESENTATIVE, ids=name)
def test_flushes_that_add_something_else_are_refused(config, monkeypatch):
    found = kernel(*config)
    broken = [only_once, *(partial(without_a_line, line=n) for n in range(0, len(found.passes[-1].flush), 5))]
    for other in broken:
        monkeypatch.setattr(multiples, "scale_flushes", other)
        with pytest.raises(BitsynthError):
            multiples.make_checked_multiple.__wrapped__(found, 1)
