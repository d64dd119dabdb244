"""The demos, as a person runs them: that of the shop, short, in every run of the tests, both in proofs.

They take minutes: each starts what it needs, streams, reconciles in Airflow, and compares every table with its source.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.demos import DAYS, Series, faults, in_one_home, own_checkout, short

pytestmark = [pytest.mark.platform, pytest.mark.timeout(3_600)]


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Series:
    return in_one_home(tmp_path_factory.mktemp("demos"), [short("shop")])


def test_the_short_demo_of_the_shop_ends_with_an_account_that_is_right(series: Series) -> None:
    """The first start of all servers, and streams, corrections, checks: the README's commands, on fewer days."""
    assert faults(series.demos[0]) == []


def test_nothing_is_left_running_after_down(series: Series) -> None:
    assert series.left == []


@pytest.mark.prove
def test_the_short_demos_in_either_order_and_again(tmp_path: Path) -> None:
    """Run again over its own data, a demo changes nothing."""
    series = in_one_home(tmp_path, [short("shop"), short("flights"), short("flights"), short("shop")])
    assert [faults(demo) for demo in series.demos] == [[]] * 4
    assert (series.demos[1].tables, series.demos[0].tables) == (series.demos[2].tables, series.demos[3].tables)
    assert series.left == []


@pytest.mark.prove
@pytest.mark.parametrize("domain", DAYS)
def test_the_whole_demo(tmp_path: Path, domain: str) -> None:
    """What `make demo` runs: a month of flights, a week of the shop; a definition is changed and taken back."""
    series = in_one_home(tmp_path / "home", [[domain]], own_checkout(tmp_path / "checkout"))
    assert faults(series.demos[0]) == []
    assert series.left == []
