"""What a run of the tests took, against the run that `kept_run.json` has: `python -m tests.harness.kept_run make test`.

Times a fixed loop of Python, runs the command, times the loop again; prints what the run took; exits with the command's
code, or 1 where the run took more CPU than is kept allows. CPU seconds are divided by those of the loop, the least of
all times, so that the figure of a slow machine is that of a fast one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import timeit
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_suffix(".json")
MADE = ROOT / ".twofold" / "durations"
LOOP = """
rows = [{"key": str(n * 7919 % 100_003), "value": n} for n in range(150_000)]
groups = {}
for row in rows:
    groups.setdefault(row["key"], []).append(row["value"])
json.loads(json.dumps(sorted(groups.items())))
"""
"""Work on more memory than a cache holds, as that of the tests is."""
ALLOWED_CPU = 1.15
LONGEST_FILES = 25


@dataclass(frozen=True, kw_only=True)
class Run:
    """A whole run of `make test`.

    Attributes:
        day: on which it was.
        minutes: by the clock on the wall, with checks of types and style.
        loop_s: CPU seconds of the fixed loop.
        loops: CPU seconds of all processes, divided by that.
        started: kind of server -> how many were started.
        cpu_s: supervised program, or kind of server -> CPU seconds; "tests" are all other processes.
        files: file -> seconds of its tests, and what they are of: see `durations.Took`.
    """

    day: str
    minutes: float
    loop_s: float
    loops: int
    started: Mapping[str, int]
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def kept() -> Run:
    """The run whose figures later ones are held by."""
    return Run(**json.loads(FILE.read_text("utf-8")))


def excess_of_starts(kept: Mapping[str, int], started: Mapping[str, int]) -> list[str]:
    """The kinds of which more than one more was started than is kept."""
    return [f"{count} {kind} instead of {kept[kind] + 1}" for kind, count in started.items() if count > kept[kind] + 1]


def judged(kept: Run, run: Run) -> tuple[str, bool]:
    """What to say of the CPU of a run, and whether it may be."""
    share = run.loops / kept.loops
    said = f"CPU seconds of all processes / those of the loop: {run.loops}, kept {kept.loops} ({share:.2f} x)"
    if share > ALLOWED_CPU:
        return f"FAILED: {said}: more than {ALLOWED_CPU} x. Hint: see which files of {FILE.name} take more now", False
    return said if share > 1 / ALLOWED_CPU else f"{said}. Hint: keep it: cp {MADE / FILE.name} {FILE}", True


def as_text(run: Run) -> str:
    """As JSON, with a line for each file."""
    return re.sub(r"\s+(?=[^{}]*\})", " ", json.dumps(asdict(run), indent=1)[:-2]) + "\n}\n"


def loop_s() -> float:
    """CPU seconds of the fixed loop, the least of three."""
    return min(timeit.repeat(LOOP, "import json", number=1, repeat=3, timer=time.process_time))


def lines(run: Run) -> list[str]:
    """The files that take longest, and what for."""
    total = {name: sum(figures[name] for figures in run.files.values()) for name in next(iter(run.files.values()), {})}
    rows = {"all": total, **dict(list(run.files.items())[:LONGEST_FILES])}
    head = "  ".join(f"{name.removesuffix('_s'):>7}" for name in total)
    return [head, *("  ".join(f"{s:7.1f}" for s in figures.values()) + f"  {name}" for name, figures in rows.items())]


def main(command: list[str]) -> int:
    """Run the command, say what it took; its exit code, or 1."""
    began_s, before_s = time.monotonic(), loop_s()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    minutes = (time.monotonic() - began_s) / 60
    if not (MADE / "test-processes.json").exists():
        return code or 1
    least_s = min(before_s, loop_s())
    processes = json.loads((MADE / "test-processes.json").read_text("utf-8"))
    run = Run(
        day=str(datetime.now(UTC).date()),
        minutes=round(minutes, 1),
        loop_s=round(least_s, 3),
        loops=round(sum(processes["cpu_s"].values()) / least_s),
        files=json.loads((MADE / "test.json").read_text("utf-8")),
        **processes,
    )
    (MADE / FILE.name).write_text(as_text(run))
    said, may_be = judged(kept(), run)
    print(*lines(run), f"{minutes:.1f} minutes; the loop takes {least_s:.3f} s", said, sep="\n", flush=True)
    return code or int(not may_be)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
