"""What people read."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from twofold.cli import console as screen
from twofold.cli.console import make_table, needed_width
from twofold.infra.text.printable import shown, shown_bytes, shown_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.44, "0.4 s"),
        (9.97, "10.0 s"),
        (59.4, "59 s"),
        (59.7, "1 min 00 s"),
        (3_599.8, "1 h 00 min"),
        (200, "3 min 20 s"),
        (7_500, "2 h 05 min"),
        (345_600, "4 days"),
    ],
)
def test_a_span_is_written_in_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert shown_duration(seconds) == text


def test_values_are_written_for_people() -> None:
    assert shown(None) == "–"
    assert shown(True) == "yes"
    assert shown(1_234_567) == "1,234,567"
    assert shown(datetime(2013, 1, 1, 10, tzinfo=UTC)) == "2013-01-01 10:00:00"


NAMES = ["table", "strategy", "reads", "rows"]
LINES = [("flights.flights_in_weather", "touched", "departures, observations", 28_869)]


def _printed(monkeypatch: pytest.MonkeyPatch, width: int, spare: list[str]) -> str:
    console = screen.Screen(width=width, highlight=False)
    monkeypatch.setattr(screen, "out", console)
    with console.capture() as captured:
        console.print(make_table("Tables", NAMES, LINES, right=["rows"], whole=["strategy"], spare=spare))
    return captured.get()


def test_a_column_that_may_be_broken_gives_its_room_to_those_that_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, narrow = (_printed(monkeypatch, width, []) for width in (80, 64))
    assert "departures, observations" in wide
    assert "departures, observations" not in narrow
    assert all(text in narrow for text in ("flights.flights_in_weather", "touched", "departures,", "28,869"))


def test_optional_columns_leave_one_by_one_when_others_lack_room(monkeypatch: pytest.MonkeyPatch) -> None:
    spare = ["reads", "strategy"]
    assert "observations" in _printed(monkeypatch, 64, spare)
    without_reads, without_both = (_printed(monkeypatch, width, spare) for width in (50, 40))
    assert "touched" in without_reads
    assert "reads" not in without_reads
    assert "strategy" not in without_both
    assert all("28,869" in text for text in (without_reads, without_both))


def test_a_table_that_would_break_a_word_is_shown_a_column_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = needed_width(make_table("Tables", NAMES, LINES, right=["rows"], whole=["strategy"]))
    enough, less = (_printed(monkeypatch, width, []).split("\n") for width in (needed, needed - 1))
    assert [line.split() for line in less if line] == [
        ["Tables"],
        ["table", "flights.flights_in_weather"],
        ["strategy", "touched"],
        ["reads", "departures,", "observations"],
        ["rows", "28,869"],
    ]
    assert not any(line.split()[:1] == ["strategy"] for line in enough)


def test_what_is_wider_than_the_screen_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    console = screen.Screen(width=20, highlight=False)
    monkeypatch.setattr(screen, "out", console)
    with console.capture() as captured:
        console.print(make_table(None, ["name"], [["x" * 50]]))
    assert "name  " + "x" * 50 + "\n" in captured.get()


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "–"), (0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (1_250_000, "1.2 MB"), (3 * 10**15, "3,000.0 TB")],
)
def test_sizes_are_shown_in_decimal_units(size: int | None, text: str) -> None:
    assert shown_bytes(size) == text


def _line(running: screen.Running, took_s: float) -> str:
    """What a terminal of 80 columns shows of a step that began some seconds ago."""
    running.began = time.monotonic() - took_s
    console = screen.Screen(width=80, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(running)
    return captured.get().rstrip("\n")


def test_a_long_step_shows_for_how_long_and_how_far_it_is() -> None:
    running = screen.Running("Compare [all] tables")
    assert _line(running, 1.5) == "Compare [all] tables"
    assert _line(running, 12.2) == "Compare [all] tables 12 s"
    running.count(5, 1_200)
    assert _line(running, 1.5) == "Compare [all] tables"
    assert _line(running, 75).split() == ["Compare", "[all]", "tables", "5", "of", "1,200", "1", "min", "15", "s"]
    running.count(600, 1_200)
    assert _line(running, 75).count("━") == 8, "half of a bar"


def test_a_step_is_one_line_of_the_screen_however_long_its_text_is() -> None:
    running = screen.Running("x" * 200)
    running.count(1, 3)
    shown = _line(running, 75)
    assert (len(shown) <= 80, "…" in shown, "1 of 3 1 min 15 s" in shown) == (True, True, True)


def test_without_a_terminal_a_step_is_its_last_line_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with screen.step("Compare tables") as running:
        running.began -= 12.2
        running.count(2, 3)
        running.what = "Compared"
    with pytest.raises(KeyError), screen.step("Compare rows"):
        raise KeyError
    assert capsys.readouterr().out == "✓ Compared 12 s\n✗ Compare rows\n"
