"""A copy in a real PostgreSQL is compared with its table, a share of the keys at a time, and left as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.infra.conftest import free_port
from tests.support.postgres import Server
from twofold import to_webhook
from twofold.batch.audit.comparison import Comparison
from twofold.batch.audit.hash_buckets import Turn
from twofold.batch.audit.table_audit import AuditReport
from twofold.features.outputs.copy_audit import audit_copies
from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.tests.followed_table import FollowedTable, hour
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import UnexplainedDifference
from twofold.tables.refresh.open_platform import Platform

pytestmark = pytest.mark.platform


@pytest.fixture
def followed(postgres: Server, tmp_path: Path) -> FollowedTable:
    """Forty rows and their copy."""
    postgres.without_copies("plant")
    table = FollowedTable(Lake(replace(postgres.settings, lake=str(tmp_path / "lake"))))
    table.put(*((f"k{n}", n, hour(n)) for n in range(40)))
    table.follow(open_target(table.lake, table.table, table.output))
    return table


def audited(followed: FollowedTable, turn: Turn) -> Comparison:
    [found] = audit_copies(platform_of(followed.lake), [followed.table], turn)
    return found


def platform_of(lake: Lake) -> Platform:
    return cast("Platform", SimpleNamespace(lake=lake))


def test_a_webhook_has_no_copy_to_audit(lake: Lake) -> None:
    followed = FollowedTable(lake, to_webhook("hook"))
    assert audit_copies(platform_of(lake), [followed.table], Turn()) == []


def test_the_shares_of_a_copy_are_the_whole(followed: FollowedTable, postgres: Server) -> None:
    assert audited(followed, Turn()) == Comparison(subject="plant.hours", other="its copy hours", rows=40)
    postgres.run("UPDATE plant.hours SET n = 70 WHERE k = 'k7'; DELETE FROM plant.hours WHERE k = 'k8'")
    found = [audited(followed, Turn(number, 4)) for number in range(4)]
    assert (sum(one.rows or 0 for one in found), sum(one.differing for one in found)) == (40, 2)
    assert postgres.run("SELECT n FROM plant.hours WHERE k = 'k7'") == [(70,)]


def test_a_copy_that_differs_fails_the_audit_with_its_repair(followed: FollowedTable, postgres: Server) -> None:
    postgres.run("INSERT INTO plant.hours VALUES ('{\"k\":\"mine\"}', 'mine', 1)")
    found = audited(followed, Turn())
    repair = "`./twofold outputs resend plant.hours --output hours --from now` repairs it"
    assert found.fault == f"plant.hours: its copy hours differs in 1 of 40 rows; {repair}"
    with pytest.raises(UnexplainedDifference, match="its copy hours differs in 1 of 40 rows"):
        AuditReport(comparisons=[found]).raise_if_wrong()
    assert not AuditReport(comparisons=[found]).passed


def test_a_copy_that_does_not_answer_is_a_fault(followed: FollowedTable) -> None:
    followed.lake = Lake(replace(followed.lake.settings, database_port=free_port()))
    assert "its copy hours is not compared: " in audited(followed, Turn()).fault


def test_a_copy_on_its_way_is_not_compared(followed: FollowedTable) -> None:
    followed.with_output(name="other")
    assert audited(followed, Turn()) == Comparison(subject="plant.hours", other="its copy other")
