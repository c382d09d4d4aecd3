"""One place to call Z3: unsat is None, sat is a model, anything else is never a pass."""

import pytest
import z3

from bitsynth.errors import Undecided
from bitsynth.solver import budget as budgets
from bitsynth.solver.budget import Budget, Model

A, B = z3.BitVecs("a b", 16)


def test_a_model_or_none():
    budget = Budget()
    model = budget.check("sat", [A * 3 == 21, z3.ULT(A, 100)])
    assert model.read_unsigned(A) == 7
    assert budget.check("unsat", [A & 1 == 1, A & 3 == 0]) is None
    assert budget.asked == 2


def test_models_read_booleans_and_signs():
    p = z3.Bool("p")
    model = Budget().check("sat", [p, A == 0xFFFE])
    assert model.true(p)
    assert model.true(z3.BoolVal(True))
    assert model.read_signed(A, 16) == -2
    assert model.read_unsigned(B) == 0


HARD = [A * B == 0x7FED, z3.UGT(A, 1), z3.UGT(B, 1), z3.ZeroExt(16, A) * z3.ZeroExt(16, B) == 0x7FED]


def test_a_tiny_budget_is_undecided():
    with pytest.raises(Undecided, match=r"factor: the solver.*--rlimit") as why:
        Budget(1).check("factor", HARD)
    assert why.value.exit_code == 3


def test_a_spent_budget_asks_no_more():
    budget = Budget(0)
    with pytest.raises(Undecided, match="the solver's budget is spent"):
        budget.check("anything", [z3.BoolVal(False)])
    assert budget.asked == 0


def test_every_query_takes_from_the_budget():
    budget = Budget()
    left = [budget.left]
    for claims in ([z3.BoolVal(True)], HARD[:2]):
        budget.check("query", claims)
        left.append(budget.left)
    assert left[0] > left[1] > left[2]


def test_the_same_query_spends_the_same():
    spent = []
    for _ in range(2):
        budget = Budget()
        budget.check("factor", HARD)
        spent.append(budget.left)
    assert spent[0] == spent[1]


@pytest.mark.parametrize("answer", [z3.unknown])
def test_unknown_never_passes(monkeypatch, answer):
    """Even where the claims are unsatisfiable, or satisfiable: no answer is no proof."""
    monkeypatch.setattr(budgets, "_check", lambda s: answer)
    for claims in ([z3.BoolVal(False)], [z3.BoolVal(True)]):
        with pytest.raises(Undecided, match="the solver gave up"):
            Budget().check("query", claims)


def test_models_are_plain_values():
    assert Model({"x": 5}) == Model({"x": 5})
    assert Model({"x": 0b1010}).read_signed(z3.BitVec("x", 4), 4) == -6
