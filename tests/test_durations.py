"""The file of durations names what takes long, and what does so without saying why."""

from __future__ import annotations

from tests.durations import Took, docstring, lines

HERE = "tests/test_durations.py"
SILENT = f"{HERE}::test_folders_and_tests_are_listed_longest_first"
EXPLAINED = f"{HERE}::test_the_reason_of_a_test_is_its_docstring"


def test_folders_and_tests_are_listed_longest_first() -> None:
    took = {"tests/a/test_x.py::test_b": Took(1.0, 0.5), SILENT: Took(40.0, 20.0), EXPLAINED + "[1]": Took(31.0, 1.0)}
    listed = [line.split() for line in lines(took)]
    assert listed[1:4] == [["72.0", "21.5", "all"], ["71.0", "21.0", "tests"], ["1.0", "0.5", "tests/a"]]
    assert [line[-1] for line in listed if "::" in "".join(line)] == [
        SILENT,
        EXPLAINED + "[1]",
        "tests/a/test_x.py::test_b",
        SILENT,
    ]


def test_the_reason_of_a_test_is_its_docstring() -> None:
    """This one."""
    assert docstring(f"{EXPLAINED}[a/b.py::c]") == "This one."
    assert docstring(SILENT) is None
