"""Counts the lines of Python by part, tests apart wherever they are: `.venv/bin/python -m docs.lines`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests import ROOT

GROUPS: Mapping[str, Sequence[str]] = {
    "core": ("infra", "quality", "tables", "streaming", "batch", "status", "dags", "testing", "cli"),
    "features": ("features",),
    "packages": tuple(f"packages/{path.name}" for path in sorted((ROOT / "packages").glob("twofold_*"))),
    "demo": ("demo",),
}
"""Group -> its parts, which are folders."""
TESTS = "tests"


def files_of(part: str) -> Iterator[Path]:
    """The modules of a part, without its tests."""
    return (path for path in (ROOT / part).rglob("*.py") if TESTS not in path.relative_to(ROOT).parts)


def tests_of(part: str) -> Iterator[Path]:
    """The tests of a part, beside it or in the folder of all tests."""
    yield from (path for path in (ROOT / part).rglob("*.py") if TESTS in path.relative_to(ROOT).parts)
    yield from (ROOT / TESTS / part).rglob("*.py")


def lines_of(files: Iterator[Path]) -> int:
    return sum(len(path.read_text("utf-8").splitlines()) for path in files)


def main() -> None:
    """Prints the lines of the product and those of tests, by group and part."""
    print(f"{'':28} product   tests")
    for group, parts in GROUPS.items():
        counted = {part: (lines_of(files_of(part)), lines_of(tests_of(part))) for part in parts}
        whole = [sum(column) for column in zip(*counted.values(), strict=True)]
        print(f"{group:26} {whole[0]:9,} {whole[1]:7,}")
        for part, (product, tests) in counted.items():
            print(f"  {part:24} {product:9,} {tests:7,}")
    print(f"{'all of the folder tests':26} {'':9} {lines_of((ROOT / TESTS).rglob('*.py')):7,}")


if __name__ == "__main__":
    main()
