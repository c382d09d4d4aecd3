"""Checks all that the certificate of a compiled network claims, by numpy alone: `python NAME_check.py CERTIFICATE`."""

import base64
import hashlib
import json
import math
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

TYPES = ("|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8")
NUMBERS = {"add": np.add, "sub": np.subtract, "max": np.maximum, "min": np.minimum}
AFFINE, MOST, FINE = {"add", "sub", "mul", "div"}, 1 << 26, 10**60
ROOT = np.frompyfunc(lambda x: Fraction(math.isqrt(x.numerator * x.denominator * FINE**2), x.denominator * FINE), 1, 1)


def require(holds: Any, what: str) -> None:
    """AssertionError if it does not hold; of arrays, unless all does."""
    if not np.all(holds):
        raise AssertionError(what)


def array(given: Any) -> Any:
    """An integer, or numbers in base64: one after another or, of `bits`, packed into bytes as (number - low) / step."""
    if not isinstance(given, dict):
        return np.asarray(given, np.int64)
    raw, shape = np.frombuffer(base64.b64decode(given["data"], validate=True), np.uint8), tuple(given["shape"])
    if "bits" not in given:
        made = raw.view(TYPES[TYPES.index(given["type"])]).reshape(shape)
        return made if made.dtype.kind == "f" else made.astype(np.int64)
    codes = raw[:, None] >> np.arange(0, 8, {1: 1, 2: 2, 4: 4, 8: 8}[given["bits"]]) & (1 << given["bits"]) - 1
    return given["low"] + given["step"] * codes.reshape(-1)[: math.prod(shape)].reshape(shape)


def rounded(a: Any, mode: str) -> Any:
    """Whole numbers by a mode of QONNX: of floats by its formulas. None falls where `a` rises."""
    if mode == "ROUND":
        return np.frompyfunc(round, 1, 1)(a) if a.dtype == object else np.rint(a)
    by = (np.floor, np.ceil)[{"DOWN": 0, "FLOOR": 0, "HALF_UP": 0, "UP": 1, "CEIL": 1, "HALF_DOWN": 1}[mode]]
    half = {"HALF_UP": 1, "HALF_DOWN": -1}.get(mode, 0) * (Fraction(1, 2) if a.dtype == object else a.dtype.type(0.5))
    return np.where((a < 0) & (mode not in ("CEIL", "FLOOR")), -by(-a + half), by(a + half))


def applied(op: Any, one: Any, other: Any, above: int) -> tuple[Any, Any]:
    """A value: numbers (channels, points), and where they go as sums rise: 1 up, -1 down, 0 neither, nan unknown."""
    (a, up), (b, also), name = one, other, op["op"]
    if name in NUMBERS:
        also = -also if name == "sub" else also
        return NUMBERS[name](a, b), np.where(up == 0, also, np.where((also == 0) | (up == also), up, np.nan))
    if name in ("mul", "div"):
        return (a * b if name == "mul" else a / b), np.where(also == 0, up * np.sign(b).astype(float), np.nan)
    if name == "count":
        return op["least"] + op["step"] * sum(a >= t for t in b.T[..., None]), np.where(also, np.nan, up)
    if name == "root":  # of fractions a bound, below or above
        return (ROOT(a) + above * (ROOT(a) ** 2 < a) * Fraction(1, FINE) if a.dtype == object else np.sqrt(a)), up
    if name == "type":
        return (a if a.dtype == object else a.astype(TYPES[TYPES.index(op["to"], -3)])), up
    return rounded(a, op[name]), up


def evaluated(chain: list[Any], at: dict[str, Any], exact: bool) -> Any:
    """The values of a chain by name, for each choice of the bounds of its roots: the true ones lie between."""
    at = {name: (np.atleast_2d(x * (1 if exact else 1.0)), up) for name, (x, up) in at.items()}
    at = {name: (np.frompyfunc(Fraction, 1, 1)(x.astype(object)), up) for name, (x, up) in at.items()} if exact else at
    roots = [op["is"] for op in chain if exact and op["op"] == "root"]
    used = [name for op in chain for name in op["of"] if name not in at]
    require(not roots or (len(roots) < 8 and len(set(used)) == len(used)), "what depends on a root is used twice")
    for bounds in range(1 << len(roots)):
        values = dict(at)
        for op in chain:
            above = op["is"] in roots and bounds >> roots.index(op["is"]) & 1
            values[op["is"]] = applied(op, values[op["of"][0]], values[op["of"][-1]], above)
        yield values


def formula(claim: dict[str, Any], sums: Any, element: int) -> Any:
    """The codes or integers that C makes of sums (channels, points), and of an element of a second tensor."""
    if claim["by"] == "table":
        return claim["table"][:, (sums[0] - claim["first"]) // claim["apart"] * claim["width"] + element]
    more = claim["factor"] * (element - claim["of_zero"])
    if claim["by"] == "rescale":
        zero, real = claim["zero"], claim["scale"].dtype.type
        value = sums.astype(real) * claim["scale"] + claim["bias"] + more.astype(real)
        return np.rint(value.clip(real(claim["low"] - zero), real(claim["high"] - zero))).astype(int) + zero
    require(abs((sums := sums + more) + 0.5) < 1 << 31, "sums leave int32")
    if claim["by"] == "thresholds":
        require(claim["values"].shape[1] < 256, "there are more levels than codes")
        return sum(np.where(claim["rising"], sums > t, sums < t).astype(np.int64) for t in claim["values"].T[..., None])
    if claim["by"] == "requantize":
        made, shift = sums * claim["multiplier"].astype(np.int32), claim["shift"]
        odd = (made >> shift & 1) - 1 if claim["even"] and shift else 0
        return ((made + ((1 << shift) >> 1) + odd >> shift) + claim["zero"]).clip(claim["low"], claim["high"])
    return {"sums": sums, "numbers": sums}[claim["by"]]


def ends(claim: dict[str, Any], low: Any, high: Any, element: int) -> Any:
    """The sums (channels, points) from `low` to `high` where intervals begin and end on which `formula` is constant."""
    if claim["by"] in ("table", "sums", "numbers"):
        every = np.arange(low.min(), high.max() + 1, claim.get("apart", MOST))[None]
        return every if "apart" in claim else np.hstack([low, high])
    start, end = formula(claim, low, element), formula(claim, high, element)
    require(abs(end - start).max() * len(low) < MOST >> 3, "there is too much to check")
    sign, levels = np.sign(end - start), np.arange(1, 1 + abs(end - start).max())[None]
    a, b = (np.broadcast_to(x, (len(low), levels.size)) for x in (low, high))
    while (a < b).any():
        middle = (a + b) >> 1
        there = sign * (formula(claim, middle, element) - start) >= levels
        a, b = np.where(there, a, np.minimum(middle + 1, b)), np.where(there, middle, b)
    return np.hstack([low, high, np.maximum(a - 1, low), a])


def sums_of(at: dict[str, Any], edge: dict[str, Any], buffer: dict[str, Any]) -> Any:
    """The least and the greatest sums (channels, 1) of products of what is on an edge with weights, or of it alone."""
    low, high = (array(edge[k]).ravel() - ("weights" in at and array(edge["zero"])) for k in ("low", "high"))
    if "weights" in at:
        require([buffer["operand"][0], buffer["operand"][1] - edge["zero"]] == at["reads"], "codes mean other integers")
        low, high = (np.minimum(low, 0), np.maximum(high, 0)) if at["padded"] else (low, high)
        w = array(at["weights"])  # (groups, channels of a group, inputs of a group, elements of the window)
        each = [w * np.broadcast_to(x, len(w) * w.shape[2]).reshape(len(w), 1, -1, 1) for x in (low, high)]
        low, high = np.minimum(*each).sum((2, 3)).ravel(), np.maximum(*each).sum((2, 3)).ravel()
    said = [(array(at[k]).ravel(), x) for k, x in (("low", low), ("high", high)) if k in at]
    require([np.array_equal(*pair) for pair in said], "ranges differ")
    return low[:, None], high[:, None]


def prove(step: dict[str, Any], buffers: list[Any], edges: list[Any], exact: bool) -> None:
    """C's formula and the chain, which never falls or never rises, are alike where the formula steps: so everywhere."""
    at = {name: (np.atleast_2d(array(x)), np.float64(0)) for name, x in step["constants"].items()}
    points, work, reads = 0, 1 + len(step["chain"]) + sum(x.shape[1] for x, _ in at.values()), len(step["inputs"])
    (low, high), bias = sums_of(step["sums"], *edges[:1], *buffers[:1]), array(step["sums"]["bias"]).reshape(-1, 1)
    at |= {f"{k}{i}": (array(edges[i].get(k, 1)), np.float64(0)) for i in range(reads) for k in ("scale", "zero")}
    second, (apart, first) = (edges[1], buffers[1]["operand"]) if reads > 1 else ({"low": 0, "high": 0}, (1, 0))
    is_line = (exact and {op["op"] for op in step["chain"]} <= AFFINE) or not step["chain"]
    for n in range(array(second["low"]).min(), array(second["high"]).max() + 1, apart):
        never = (n < array(second["low"])) | (n > array(second["high"]))
        for claim, buffer, edge in zip(step["claims"], buffers[reads:], edges[reads:], strict=True):
            facts = {k: array(x) if isinstance(x, dict) else x for k, x in claim.items()}
            sums, by, off = ends(facts, low + bias, high + bias, (n - first) // apart), claim["by"], claim.get("off", 0)
            made = buffer["operand"][1] + buffer["operand"][0] * formula(facts, sums, (n - first) // apart)
            require((points := points + sums.size * work) < MOST, "there is too much to check")
            places = abs(sums).astype("<i4").view("<f4") * np.sign(sums).astype("<f4")
            number = places if "places" in step["sums"] else sums - bias
            start = at | {"sum": (number, np.float64(1)), "other": (np.asarray(n), np.float64(0))}
            made = next(evaluated(step["chain"], start, False))[claim["is"]][0] if by == "numbers" else made
            for found, rises in (values[claim["is"]] for values in evaluated(step["chain"], start, exact)):
                require((abs(found - made) <= (by == "numbers") * off) | never, "the chain and C's formula differ")
                require({"sums": is_line, "table": True, "numbers": exact}.get(by, ~np.isnan(rises)), "it turns back")
            require((array(edge["low"]) <= made) & (made <= array(edge["high"])) | never, "results leave their range")


def check_memory(certificate: dict[str, Any]) -> None:
    """What a step reads was written, once; no two buffers in use at a step share memory; all elements have room."""
    buffers, rows, life = certificate["buffers"], [], {name: [0, 0] for name in certificate["inputs"]}
    home = {name: b["alias"] or name for name, b in buffers.items()}
    for place, step in enumerate(certificate["steps"]):
        require(bool(step["claims"]) != bool(step["unclaimed"]), f"step {place} says nothing of why it claims nothing")
        for name in step["inputs"]:
            require(home[name] in life, f"step {place} reads {name}, which nothing wrote")
            life[home[name]][1] = place
        for name in step["outputs"]:
            require(home[name] == name and name not in life, f"step {place} writes {name} again")
            life[name] = [place, place]
    for name, b in buffers.items():
        edge, (least, most) = certificate["edges"][b["edge"]], b["holds"]
        require(buffers[home[name]]["bytes"] * 8 >= math.prod(edge["shape"]) * b["bits"], f"{name} has too few bytes")
        require((array(edge.get("low", least)) >= least) & (array(edge.get("high", most)) <= most), f"{name} is narrow")
        require(b["alias"] or b["life"] == life.get(name), f"{name} is in use from {life.get(name)}")
        if b["alias"] == "" and name not in certificate["inputs"] + certificate["outputs"]:
            rows.append((*b["life"], b["offset"], -(-b["bytes"] // 64) * 64))
    first, last, start, size = np.array(rows, np.int64).reshape(-1, 4).T[..., None]
    both = (first <= last.T) & (first.T <= last) & (start < (start + size).T) & (start.T < start + size)
    require(both.sum() == len(both), "two buffers in use at one step lie in the same memory")
    require((start == abs(start) // 64 * 64) & (start + size <= certificate["arena"]["bytes"]), "outside of the arena")
    bound = max([0, *(size[(first <= place) & (place <= last)].sum() for place in first.ravel())])
    require(bound == certificate["arena"]["bound"], f"the lower bound of the arena is {bound} bytes")


def check(certificate: dict[str, Any], folder: Path) -> None:
    """AssertionError says what of a certificate of the files in a folder does not hold."""
    rest = json.dumps({**certificate, "digest": ""}, sort_keys=True, separators=(",", ":"))
    require(certificate["digest"] == hashlib.sha256(rest.encode()).hexdigest(), "the certificate was changed")
    for name, digest in certificate["files"].items():
        require(Path(name).name == name and (folder / name).is_file(), f"there is no file {name}")
        require(hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, f"{name} was changed")
    check_memory(certificate)
    for step in filter(lambda step: step["claims"], certificate["steps"]):
        buffers = [certificate["buffers"][name] for name in (*step["inputs"], *step["outputs"])]
        prove(step, buffers, [certificate["edges"][b["edge"]] for b in buffers], certificate["reference"] == "exact")


if __name__ == "__main__":
    try:
        check(json.loads(Path(sys.argv[1]).read_bytes()), Path(sys.argv[1]).parent)
        print("all that is claimed holds")
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, AssertionError) else 2)
