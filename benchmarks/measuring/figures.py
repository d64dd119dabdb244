"""Prints and keeps what a benchmark measured."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

from tests import ROOT

RESULTS = ROOT / ".twofold" / "benchmarks"
KEPT = ROOT / "benchmarks" / "kept_figures.json"


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median and greatest."""
    return {"min": min(values), "median": median(values), "max": max(values)}


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of unsorted values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(name: str, figures: Mapping[str, object], claims: Mapping[str, bool]) -> bool:
    """Print the figures and whether each claim holds, keep both as JSON, and say whether all hold."""
    load = os.getloadavg()[0]
    print(f"\n{name}  ({platform.machine()}, {os.cpu_count()} cores, load {load:.1f})")
    for figure, value in figures.items():
        print(f"  {figure}: {_text(value)}")
    for claim, holds in claims.items():
        print(f"  {'holds' if holds else 'FAILS'}: {claim}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    facts = {"name": name, "at": datetime.now(UTC).isoformat(), "cores": os.cpu_count(), "load": load}
    document = {**facts, "figures": figures, "claims": claims}
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=2, default=str) + "\n")
    return all(claims.values())


def keep() -> list[str]:
    """Put what was measured last into the file that the page of benchmarks is made from; the names of these."""
    kept, names = json.loads(KEPT.read_text("utf-8")), []
    for one in kept:
        file = RESULTS / f"{one['name']}.json"
        if file.exists():
            found = json.loads(file.read_text("utf-8"))
            names.append(one["name"])
            one["at"], one["on"] = found["at"][:10], f"{found['cores']} cores, load {found['load']:.1f}"
            one["figures"], one["claims"] = list(_rows(found["figures"])), found["claims"]
            one["columns"] = ["least", "median", "greatest"]
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return names


def _rows(figures: Mapping[str, Any], before: str = "") -> Iterator[list[Any]]:
    for name, value in figures.items():
        if isinstance(value, Mapping) and set(value) == {"min", "median", "max"}:
            yield [before + name, *(_rounded(value[key]) for key in ("min", "median", "max"))]
        elif isinstance(value, Mapping):
            yield from _rows(value, f"{before}{name}, ")
        elif isinstance(value, int | float):
            yield [before + name, None, _rounded(value), None]


def _rounded(value: float) -> float:
    return float(f"{value:.3g}") if abs(value) < 1000 else round(value)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    return str(value)
