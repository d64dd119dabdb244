"""What the files of a run say that its tests took."""

from __future__ import annotations

from tests.harness.durations import Took, by_file, docstring, lines

HERE = "tests/harness/test_durations.py"
SILENT = f"{HERE}::test_folders_and_tests_are_listed_longest_first"
EXPLAINED = f"{HERE}::test_the_reason_of_a_test_is_its_docstring"


def test_folders_and_tests_are_listed_longest_first() -> None:
    took = {"tests/a/test_x.py::test_b": Took(1.0, 0.5), SILENT: Took(40.0, 20.0), EXPLAINED + "[1]": Took(31.0, 1.0)}
    listed = [line.split() for line in lines(took)]
    assert listed[1:4] == [["72.0", "21.5", "all"], ["71.0", "21.0", "tests/harness"], ["1.0", "0.5", "tests/a"]]
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


def test_seconds_are_added_up_by_file() -> None:
    tests = {
        "tests/test_a.py::test_one": Took(seconds=2.0, cpu_s=0.5, waiting_s=1.5),
        "tests/test_a.py::test_two[x]": Took(seconds=1.0, jvm_s=1.0),
        "tests/test_b.py::test_one": Took(seconds=0.4),
        "tests/test_c.py::test_one": Took(seconds=0.4, cpu_s=0.3),
    }
    none = {"seconds": 0.0, "cpu_s": 0.0, "jvm_s": 0.0, "server_s": 0.0, "waiting_s": 0.0}
    assert by_file(tests) == {
        "tests/test_a.py": {**none, "seconds": 3.0, "cpu_s": 0.5, "jvm_s": 1.0, "waiting_s": 1.5},
        "others": {**none, "seconds": 0.8, "cpu_s": 0.3},
    }
