"""One price, one list of forms and one way to C for artifacts of every kind."""

from types import SimpleNamespace

import pytest

from bitsynth import get_kernel
from bitsynth.isa.load import load
from bitsynth.kernel.straight_line import needs
from bitsynth.layers.depthwise import kernel_for
from bitsynth.proof.proved import Proved
from bitsynth.schedule.price import count_cycles, price, processors_of, rank
from bitsynth.spec.matmul import Encoding, MatmulOperand
from bitsynth.store.kinds import KINDS


def artifact(kind, isa="avx512"):
    """The first artifact of a kind that ships for an instruction set."""
    path = next(path for path in KINDS[kind].every() if isa in path.parts)
    proved = KINDS[kind].load(path)
    return (proved if isinstance(proved, Proved) else proved.proved).artifact


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_price_on_the_processors_that_have_its_forms(kind):
    program = artifact(kind)
    isa = load(program.isa)
    prices = price(program)
    assert list(prices) == processors_of(program) != []
    for cpu in isa.table.cpu:
        assert (cpu in prices) == ({*program.forms} <= isa.for_cpu(cpu).instrs.keys())
    assert all(cycles == round(count_cycles(program, cpu), 4) > 0 for cpu, cycles in prices.items())


@pytest.mark.parametrize("kind", KINDS)
def test_records_hold_the_price(kind):
    path = next(iter(KINDS[kind].every()))
    record = KINDS[kind].read(path)
    program = record.kernel if kind == "product" else record.program
    assert price(program) == (record.cycles if kind == "elementwise" else record.cost.cycles)


@pytest.mark.parametrize("kind", KINDS)
def test_forms_are_sorted_and_say_what_c_needs(kind):
    program = artifact(kind)
    assert program.forms == sorted({*program.forms})
    assert needs(program) == load(program.isa).requirements(program.forms)


def test_a_kind_without_a_price_is_refused():
    with pytest.raises(TypeError, match="no price is known of SimpleNamespace"):
        count_cycles(SimpleNamespace(isa="avx2", forms=[]), "zen4")


def test_programs_are_ranked_by_cycles_of_an_element():
    program = artifact("elementwise")
    cycles = [x / program.unit for x in price(program).values()]
    assert list(rank(program)[:-2]) == cycles


def layer_kernels():
    """A kernel of each kind that layers have."""
    act, wgt = MatmulOperand(2, Encoding.UNSIGNED), MatmulOperand(2, Encoding.SIGNED)
    return [get_kernel("avx2", 2, 2).with_rows(1), kernel_for("avx2", act, wgt)]


@pytest.mark.parametrize("kernel", layer_kernels(), ids=lambda x: x.kind.name)
def test_layers_ask_kernels_of_each_kind_alike(kernel):
    source = kernel.source_for(None)
    assert (source.name, source.header, source.needs) == (kernel.name, kernel.header, kernel.needs)
    assert f"struct bs_{kernel.field} {kernel.name}_layer_kernel" in "".join(source.layer_header.values())
    assert kernel.field == source.field
    path = kernel.kind.find_named(kernel.stored.name)
    assert kernel.kind.read(path).digest == kernel.stored.digest


def test_a_depthwise_kernel_is_read_in_its_own_orders_alone():
    matmul, depthwise = layer_kernels()
    other = SimpleNamespace(is_ordered=False, order=(1, 0))
    own = SimpleNamespace(is_ordered=False, order=depthwise.program.orders[-1])
    assert matmul.is_read_by(other)
    assert not depthwise.is_read_by(other)
    assert depthwise.is_read_by(own)
