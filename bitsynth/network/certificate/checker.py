"""Checks all that the certificate of a compiled network claims, by numpy alone: `python NAME_check.py [FILE]`."""

import base64
import hashlib
import json
import math
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = {"add": np.add, "sub": np.subtract, "max": np.maximum, "min": np.minimum}
AFFINE, MOST, LOST = {"add", "sub", "mul", "div"}, 1 << 29, 2.0**-51  # of float64 an operation loses a fourth of that
fractions, even, erf, FIT = *(np.frompyfunc(f, 1, 1) for f in (Fraction, round, math.erf)), (-1 << 53, 1 << 53)
CURVES: Any = {"sigmoid": lambda x: 1 / (1 + np.exp(-x.clip(-700))), "tanh": np.tanh, "erf": erf}  # slopes below 8 / 7


def require(holds: Any, what: str) -> None:
    """AssertionError if it does not hold; of arrays, unless all does."""
    if not np.all(holds):
        raise AssertionError(what)


def array(given: Any) -> Any:
    """An integer, or numbers in base64: one after another or, of `bits`, packed into bytes as (number - low) / step."""
    if not isinstance(given, dict):
        return np.asarray(given, np.int64).clip(*FIT)
    data, bits = base64.b64decode(given["data"], validate=True), {1: 1, 2: 2, 4: 4, 8: 8}[given.get("bits", 8)]
    raw = (np.frombuffer(data, "u1")[:, None] >> np.arange(0, 8, bits, dtype="u1") & (1 << bits) - 1).ravel()
    x = raw.view(given.get("type", "u1"))[: np.prod(given["shape"], dtype=object)].reshape(given["shape"])
    return x if x.dtype.kind == "f" else (given.get("low", 0) + given.get("step", 1) * x.astype(int)).clip(*FIT)


def evaluated(chain: list[Any], at: dict[Any, Any], exact: bool) -> dict[Any, Any]:
    """Numbers (channels, points) by name; where they go as sums rise, 1, -1, 0, nan; how far real ones are, or nan."""
    values, lost = dict(at), LOST if exact and at["sum"][0].dtype != object else 0
    for name, of, op in ((op["op"], op["of"], op) for op in chain):
        (a, up, off), (b, also, more) = values[of[0]], values[(of[-1],) if name == "count" else of[-1]]
        if name in NUMBERS:
            made, also = NUMBERS[name](a, b), -also if name == "sub" else also
            up = np.where(up == 0, also, np.where((also == 0) | (up == also), up, np.nan))
            low, high = (NUMBERS[name](a + sign * off, b + sign * more) for sign in (-1, 1))
            whole = not lost or (off == 0) & (more == 0) & (a % 1 == 0) & (b % 1 == 0) & (abs(made) < 2.0**53)
            off = (off + more) * (low != high) if name not in AFFINE else off + more + lost * abs(made) * (1 - whole)
        elif name in AFFINE:
            made, least, sign = a * b if name == "mul" else a / b, abs(b) - more, np.sign(b).astype(float)
            up = np.where((also == 0) & ((more == 0) | (least > 0)), up * sign, np.nan)
            off = abs(a) * more + (abs(b) + more) * off if name == "mul" else (off + abs(made) * more) / least.clip(0)
            off = off + lost * (abs(made) + 2.0**-900 * (a != 0) * (b != 0)) if lost else off
        elif name == "root":
            made = fractions(np.sqrt(a.astype(float))) if a.dtype == object else np.sqrt(a)
            off = off / np.where(off == 0, 1, made) + made * (lost or Fraction(LOST) * (made**2 != a))
        elif exact and name in CURVES:
            made = (np.asarray if lost else fractions)(CURVES[name](np.asarray(a, float)).astype(float))
            off = np.where((a == 0) & (off == 0), 0 * off, off + off / 7 + 8 * (lost or Fraction(LOST)))
        elif name == "type":
            made = a if exact else a.astype(f"<f{op['bytes']}")
        else:
            to = {"floor": np.floor, "ceil": np.ceil, "round": (np.rint, even)[a.dtype == object], "count": None}[name]
            off = off + lost * (1 + abs(a)) if lost else off
            low, made = (to(x) if to else sum(x >= t for t in b.T[..., None]) for x in (a - off, a + off))
            off = np.where((low == made) & (off < np.inf), 0 * low, np.nan)
        values.setdefault(op["is"], (made, up, off if exact else 0.0))
    return values


def compared(chain: list[Any], at: dict[Any, Any], name: str, wanted: Any, exact: bool, turns: bool) -> Any:
    """Where a chain has what is wanted, by fractions where float64 leaves that open, and may not turn back."""
    made, rises, off = evaluated(chain, at, exact)[name]
    made, wanted, left = np.broadcast_arrays(made, wanted, off != 0)
    alike, (rows, points) = (made == wanted) & ~left, left.nonzero()
    if rows.size and at["sum"][0].dtype != object:
        require(rows.size * (1 + len(chain)) < MOST >> 4, "there is too much to check in fractions")
        at = {k: x[rows % len(x), points][:, None] if k == "sum" else x[rows % len(x)] for k, (x, *_) in at.items()}
        at = {k: (fractions(x), 0, 0) for k, x in at.items()}
        alike[left] = compared(chain, at, name, wanted[left][:, None], exact, True)[:, 0]
    return alike & (turns | ~np.isnan(rises))


def formula(claim: dict[str, Any], sums: Any, element: int) -> Any:
    """The codes or integers that C makes of sums (channels, points), and of an element of a second tensor."""
    if (by := claim["by"]) == "table":
        return claim["table"][:, np.uint64((sums[0] - claim["first"]) // claim["apart"] * claim["width"] + element)]
    more = claim["factor"] * float(element - claim["of_zero"])
    require((abs(sums + 0.5) < 1 << 31) & (abs(sums + more + 0.5) < 1 << 31), "sums leave int32")
    if "scale" in claim:
        value = sums.astype(real := claim["scale"].dtype) * claim["scale"] + claim["bias"] + more.astype(real)
        if by == "curve":
            cell = (place := value.clip(0, len(claim["turns"]) - 1)).astype(int)
            return claim["table"][cell, (place >= claim["turns"][cell, 0]) * 1]
        value *= (value * claim["gate"][0] + claim["gate"][1]).clip(0, 1) if by == "gate" else 1
        return np.rint(value.clip(*(claim[k] - claim["zero"] for k in ("low", "high")))).astype(int) + claim["zero"]
    for a, b, m, k in (map(array, x) for x in {"lines": claim.get("values", ()), "sums": (), "thresholds": ()}[by]):
        require(abs((made := sums.clip(a, b) * 1.0 * m + k) + 0.5) < 1 << 31, "products leave int32")
        sums = made // (1 << 23)
    turns, sums = np.array(claim["values"] if by == "thresholds" else [[]]).T[..., None], sums + more
    return sum((np.where(claim["rising"], sums > t, sums < t) for t in turns), sums * (by != "thresholds"))


def ends(claim: dict[str, Any], low: Any, high: Any, grid: int, element: int) -> Any:
    """The sums (channels, points) from `low` to `high` where intervals begin and end on which `formula` is constant."""
    if claim["by"] in ("table", "gate", "curve", "sums", "numbers"):
        return np.c_[low, high] if claim["by"] == "sums" else np.array(range(low.min(), high.max() + 1, grid))[None]
    start, end, low, high = np.broadcast_arrays(formula(claim, low, element), formula(claim, high, element), low, high)
    a, b, levels = np.broadcast_arrays(low, high, np.arange(1, 1 + abs(end - start).max())[None])
    while (a < b).any():
        there = np.sign(end - start) * (formula(claim, middle := (a + b) >> 1, element) - start) >= levels
        a, b = np.where(there, a, np.minimum(middle + 1, b)), np.where(there, middle, b)
    return np.hstack([low, high, np.maximum(a - 1, low), a])


def prove(step: dict[str, Any], buffers: list[Any], edges: list[Any], exact: bool) -> None:
    """C's formula and the chain, which never falls or never rises, are alike where the formula steps: so everywhere."""
    one, chain, points, reads = np.ones((1, 1)) if exact else 1.0, step["chain"], 0, len(step["inputs"])
    named = {f"{k}{i}": edge.get(k, 1) for i, edge in enumerate(edges[:reads]) for k in ("scale", "zero")}
    at = {(k,): (np.atleast_2d(array(x) * one), 0.0, 0.0) for k, x in {**step["constants"], **named}.items()}
    at |= {k: (x.reshape(-1, 1), 0.0, 0.0) for (k,), (x, *_) in at.items()}
    of, edge, (apart, first), (grid, at_0) = step["sums"], edges[0], *[buffers[0]["operand"]] * 2
    low, high = (array(edge[k]).reshape(-1, 1)[of.get("rows", ...)] for k in ("low", "high"))
    if "weights" in of:  # (groups, channels, inputs, window)
        w, zero, same = array(of["weights"]).astype(float), edge["zero"], array(edge["scale"]).size == 1
        require((same or w[0, :, :, 0].size == 1) & ([apart, first - zero] == of["reads"]), "codes mean other integers")
        reach = (np.minimum(low, zero), np.maximum(high, zero)) if of["padded"] else (low, high)
        each = [w * np.broadcast_to(x.ravel() - zero, len(w) * w.shape[2]).reshape(len(w), 1, -1, 1) for x in reach]
        require(np.abs(each).sum() < 1 << 53, "sums leave int64")
        low, high = (f(*each).sum((2, 3)).reshape(-1, 1).astype(int) for f in (np.minimum, np.maximum))
        grid, at_0 = (apart, (first - zero) * w[0, 0].size) if np.all(w == 1) and not of["padded"] else (1, 0)
    require([np.all(array(of[k]) == x[:, 0]) for k, x in (("low", low), ("high", high)) if k in of], "ranges differ")
    bias, is_line = array(of["bias"]).reshape(-1, 1), (exact and {op["op"] for op in chain} <= AFFINE) or not chain
    grid, low, high = grid if np.all((at_0 + bias - (low + bias).min()) % grid == 0) else 1, low + bias, high + bias
    other, (apart, first) = (edges[1], buffers[1]["operand"]) if reads > 1 else ({"low": 0, "high": 0}, (1, 0))
    least, most = (array(other[k]).reshape(-1, 1) for k in ("low", "high"))
    require(((least - first) % apart == 0) & (low.size > 0) & (reads < 3), "it reads something else")
    for n in range(least.min(), most.max() + 1, apart):
        for claim, buffer, edge in zip(step["claims"], buffers[reads:], edges[reads:], strict=True):
            by, facts = claim["by"], {k: array(x) if isinstance(x, dict) else x for k, x in claim.items()}
            facts |= {k: x.reshape(-1, 1) for k, x in facts.items() if np.ndim(x) and k not in ("table", "values")}
            for k, times in (("scale", of.get("scale", 1)), ("zero", int("weights" not in of))):
                same = np.all(array(edges[0].get(k, 0)).ravel() * array(times).ravel() == array(edge.get(k, 0)).ravel())
                require(same or claim["is"] != "sum" or by == "numbers", "elements mean something else")
            sums = ends(facts, low, high, grid, (n - first) // apart)
            never = (n < least) | (n > most) | (sums < low) | (sums > high)
            require((points := points + sums.size * (1 + len(chain))) < MOST, "there is too much to check")
            real = abs(sums).astype("<i4").view("<f4") * np.sign(sums, dtype="<f4") if "places" in of else sums - bias
            start = at | {"sum": (real * one, 1.0, 0.0), "other": (np.full((1, 1), float(n)), 0.0, 0.0)}
            if by == "numbers":
                x, _, off = evaluated(chain, start, exact)[claim["is"]]
                made, own = (sums, (sums - array(edge["zero"])) * array(edge["scale"])) if "scale" in edge else [x] * 2
                require(exact & (abs(x - own) <= off) & (off <= claim["off"]), "C may be farther off")
            else:
                made = buffer["operand"][1] + buffer["operand"][0] * formula(facts, sums, (n - first) // apart)
                alike = compared(chain, start, claim["is"], made, exact, by in ("table", "gate", "curve"))
                require(never | alike & (is_line or by != "sums"), "the chain and C's formula differ, or it is no line")
            lower, upper = (array(edge[k]).reshape(-1, 1) for k in ("low", "high"))
            require((lower <= made) & (made <= upper) | never, "results leave their range")


def check(given: dict[str, Any], folder: Path) -> None:
    """AssertionError says what of a certificate of the files in a folder does not hold."""
    rest = json.dumps({**given, "digest": ""}, sort_keys=True, separators=(",", ":")).encode()
    require(given["digest"] == hashlib.sha256(rest).hexdigest(), "the certificate was changed")
    for name, digest in given["files"].items():
        require(Path(name).name == name and (folder / name).is_file(), f"there is no file {name}")
        require(hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, f"{name} was changed")
    buffers, edges, rows, life = given["buffers"], given["edges"], [], {k: [0, 0] for k in given["inputs"]}
    home, exact = {name: b["alias"] or name for name, b in buffers.items()}, given["reference"] == "exact"
    for place, step in enumerate(given["steps"]):
        require(bool(step["claims"]) != bool(step["unclaimed"]), f"step {place} says nothing of why it claims nothing")
        require([home[name] in life for name in step["inputs"]], f"step {place} reads what nothing wrote")
        require([home[k] == k and k not in life for k in step["outputs"]], f"step {place} writes a buffer again")
        life |= {home[k]: [life[home[k]][0], place] for k in step["inputs"]} | {k: [place] * 2 for k in step["outputs"]}
        if step["claims"]:
            used = [buffers[name] for name in step["inputs"] + step["outputs"]]
            prove(step, used, [edges[b["edge"]] for b in used], exact)
    for name, b in buffers.items():
        edge, (least, most), root = edges[b["edge"]], b["holds"], buffers[home[name]]
        spans = [[{*array(x.get(k, 0)).flat} for k in ("low", "high")] for x in (edge, edges[root["edge"]])]
        require(spans[0] == spans[1] and b["operand"] == root["operand"], f"{name} is of other integers")
        require(0 < b["operand"][0] < 256 and abs(b["operand"][1]) < 1 << 31, f"{name} has other codes")
        require(root["bytes"] * 8 >= np.prod(edge["shape"], dtype=object) * b["bits"], f"{name} has too few bytes")
        require((array(edge.get("low", least)) >= least) & (array(edge.get("high", most)) <= most), f"{name} is narrow")
        require(b["alias"] or b["life"] == life.get(name), f"{name} is in use from {life.get(name)}")
        if b["alias"] == "" and name not in given["inputs"] + given["outputs"]:
            rows.append((*b["life"], b["offset"], -(-b["bytes"] // 64) * 64))
    first, last, start, size = np.array(rows, object).reshape(-1, 4).T[..., None]
    both = (first <= last.T) & (first.T <= last) & (start < (start + size).T) & (start.T < start + size)
    require(both.sum() == len(both), "two buffers in use at one step lie in the same memory")
    require((start == abs(start) // 64 * 64) & (start + size <= given["arena"]["bytes"]), "outside of the arena")
    bound = max([0, *(size[(first <= place) & (place <= last)].sum() for place in first.ravel())])
    require(bound == given["arena"]["bound"], f"the lower bound of the arena is {bound} bytes")


if __name__ == "__main__":
    try:
        check(json.loads((file := Path([*sys.argv, __file__[:-9] + ".certificate.json"][1])).read_bytes()), file.parent)
        print("all that is claimed holds")
    except Exception as error:
        sys.exit(sys.stderr.write(f"{type(error).__name__}: {error}\n") and 2 - isinstance(error, AssertionError))
