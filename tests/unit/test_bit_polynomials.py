"""Polynomials of bits: two payloads have the same if and only if they are one function."""

import random

import pytest

from bitsynth.isa.domains.terms import TermDomain, TermPayload
from bitsynth.objects.memory import NotShown
from bitsynth.objects.polynomials import BitPolynomials, value

UNKNOWN = ["a", "b"]
"""Unknown bytes whose low two bits are not 0."""
WIDTH = 16


def random_payload(d, rng, depth):
    """A payload of 16 bits, and it as a function of the numbers of the unknown bytes."""
    if not depth or rng.random() < 0.1:
        if rng.random() < 0.2:
            number = rng.getrandbits(WIDTH)
            return number, lambda state: number
        name = rng.choice(UNKNOWN)
        byte = d.zext(d.atom(name, 2), 2, WIDTH)
        return byte, lambda state: state[name]
    (x, f), (y, g) = (random_payload(d, rng, depth - 1) for _ in range(2))
    n, every = rng.randrange(1, WIDTH), (1 << WIDTH) - 1
    if rng.random() < 0.2:
        table = [rng.getrandbits(WIDTH) for _ in range(4)]
        return d.lookup(table, d.cut(x, WIDTH, 0, 2), WIDTH), lambda state: table[f(state) & 3]
    if rng.random() < 0.2:
        size = rng.choice([4, 8])
        low = d.trunc(x, WIDTH, size)
        return d.sext(
            low, size, WIDTH
        ), lambda state: ((f(state) & (1 << size) - 1) ^ 1 << size - 1) - (1 << size - 1) & every
    if rng.random() < 0.15:
        less = d.ult(x, y, WIDTH)
        return d.ite(less, x, y, WIDTH), lambda state: min(f(state), g(state))
    return rng.choice([
        (d.add(x, y, WIDTH), lambda state: f(state) + g(state) & every),
        (d.sub(x, y, WIDTH), lambda state: f(state) - g(state) & every),
        (d.mul(x, y, WIDTH), lambda state: f(state) * g(state) & every),
        (d.and_(x, y, WIDTH), lambda state: f(state) & g(state)),
        (d.or_(x, y, WIDTH), lambda state: f(state) | g(state)),
        (d.xor(x, y, WIDTH), lambda state: f(state) ^ g(state)),
        (d.shl(x, n, WIDTH), lambda state: f(state) << n & every),
        (d.lshr(x, n, WIDTH), lambda state: f(state) >> n),
        (d.popcount(x, WIDTH), lambda state: f(state).bit_count()),
    ])  # fmt: skip


def test_a_polynomial_is_the_function_of_its_payload():
    rng, d = random.Random(1), TermDomain()
    polynomials = BitPolynomials()
    functions: dict[tuple[int, ...], set[object]] = {}
    for _ in range(400):
        x, f = random_payload(d, rng, rng.randrange(1, 4))
        polynomial = polynomials.of(x, WIDTH)
        numbers = []
        for a in range(4):
            for b in range(4):
                ones = frozenset(
                    (name, k) for name, n in zip(UNKNOWN, (a, b), strict=True) for k in range(2) if n >> k & 1
                )
                numbers.append(value(polynomial, ones) % (1 << WIDTH))
                assert numbers[-1] == f({"a": a, "b": b})
        functions.setdefault(tuple(numbers), set()).add(frozenset(polynomial.items()))
    assert len(functions) > 100
    assert all(len(same) == 1 for same in functions.values())


def test_sums_of_many_bits_are_read_in_parts():
    d, polynomials = TermDomain(), BitPolynomials()
    codes = [d.zext(d.atom(k, 2), 2, 8) for k in range(64)]
    words = [d.join(codes[k : k + 8], 8) for k in range(0, 64, 8)]
    total = words[0]
    for word in words[1:]:
        total = d.add(total, word, 64)
    pairs = d.add(d.and_(total, 0x00FF00FF00FF00FF, 64), d.and_(d.lshr(total, 8, 64), 0x00FF00FF00FF00FF, 64), 64)
    result = d.lshr(d.mul(pairs, 0x0001000100010001, 64), 48, 64)
    expected = {frozenset([(k, b)]): 1 << b for k in range(64) for b in range(2)}
    assert polynomials.of(d.trunc(result, 64, 32), 32) == expected


def test_a_part_into_which_a_sum_may_carry_is_refused():
    d, polynomials = TermDomain(), BitPolynomials()
    total: TermPayload = 0
    for k in range(40):
        total = d.add(total, d.zext(d.atom(k, 3), 3, 8), 8)
    with pytest.raises(NotShown, match="may carry"):
        polynomials.of(d.lshr(total, 7, 8), 8)
