"""The tests of the checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def is_test(path: Path) -> bool:
    """Whether a file, given relative to the root, is of tests: in the room of tests, or in those of a feature."""
    return "tests" in path.parts
