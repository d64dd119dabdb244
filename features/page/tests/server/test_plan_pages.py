"""The page of a plan: the text of the command, as rows; what can be done about it, by its state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from twofold.batch.plan.plan import Plan, Plans, TableChange
from twofold.batch.plan.plan_text import markdown
from twofold.features.page.tests.server.test_app import Elements, client, hostile, page
from twofold.features.page.tests.small_platform import HOURS, saved
from twofold.infra.project.settings import Settings

NOW = datetime.now(UTC)


def kept(settings: Settings, text: str = "nine", **facts: Any) -> Plan:
    """A plan that changes a row of `plant.hours`, in the home."""
    summary = {
        "totals": [{"column": "total", "before": 8.5, "after": 9.5}],
        "segments": [{"column": "sensor", "value": text, "share": 0.9, "of_all": 0.1}],
        "days": [{"day": "2013-01-05", "inserted": 1, "deleted": 2, "updated": 3}],
        "columns": [{"column": "n", "rows": 1, "key": {}, "before": text, "after": 8}],
        "samples": [{"change": "update", "key": {"sensor": text}, "values": {"n": [1, 2], "m": [3, 4]}}],
    }
    change = TableChange(table=HOURS, cause="backfill", version=1, rows_before=40, updated=1, summary=summary)
    usual: dict[str, Any] = {
        "id": "backfill-20130105-abc", "cause": "backfill", "command": ["backfill", HOURS], "created_at": NOW,
        "expires_at": NOW + timedelta(days=3), "who": "ann", "why": text, "changes": [change], "notes": [text],
    }  # fmt: skip
    plan = Plan(**{**usual, **facts})
    (settings.plans / plan.id).mkdir(parents=True, exist_ok=True)
    return Plans(settings).save(plan)


def test_a_plan_has_all_that_the_command_says_of_it(settings: Settings) -> None:
    saved(settings)
    plan = kept(settings)
    found = page(settings, f"/plans/{plan.id}")
    text = " ".join(" ".join(found.text).split())
    for line in markdown(plan).splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            assert [cell.strip() for cell in line.strip("|").split("|")] in found.rows
        elif line.startswith("- "):
            assert line.removeprefix("- ") in text
    assert "▲ waits" in text
    assert f"./twofold publish {plan.id} ./twofold discard {plan.id}" in text
    assert f"/tables/{HOURS}" in found.addresses


def test_columns_that_the_platform_adds_are_folded_away(settings: Settings) -> None:
    saved(settings)
    totals = [{"column": name, "before": 1, "after": 2} for name in ("total", "_late_by_ms")]
    samples = [{"change": "update", "key": {"sensor": "a"}, "values": {"n": [1, 2], "_replayed": [False, True]}}]
    summary = {"totals": totals, "samples": samples}
    change = TableChange(table=HOURS, cause="replay", version=1, rows_before=40, updated=1, summary=summary)
    text = client(settings).get(f"/plans/{kept(settings, changes=[change]).id}").text
    folded = "".join(part.partition("</details>")[0] for part in text.split("<details>")[1:])
    assert [name in folded for name in ("_late_by_ms", "_replayed", "total", "sensor=a")] == [True, True, False, False]
    assert text.count("_late_by_ms") == text.count("_replayed") == 1


@pytest.mark.parametrize(
    ("facts", "state", "command"),
    [
        ({"begun_at": NOW}, "▲ begun", "./twofold publish backfill-20130105-abc"),
        ({"published_at": NOW}, "● published", f"./twofold rollback {HOURS} --run backfill-20130105"),
        ({"discarded_at": NOW}, "○ discarded", f"./twofold backfill {HOURS} --preview"),
        ({"expires_at": NOW - timedelta(days=1)}, "○ expired", f"./twofold backfill {HOURS} --preview"),
    ],
)
def test_what_can_be_done_about_a_plan_follows_from_its_state(
    settings: Settings, facts: dict[str, Any], state: str, command: str
) -> None:
    saved(settings)
    text = " ".join(" ".join(page(settings, f"/plans/{kept(settings, **facts).id}").text).split())
    assert state in text
    assert command in text


ASKED = "plant.backfill.hours manual__2013-01-05T00:00:00+00:00"


@pytest.mark.parametrize(
    ("facts", "address"),
    [
        ({}, "/tasks/approve/required_actions"),
        ({"published_at": NOW, "approved_by": "ann", "because": "it was seen"}, ""),
        ({"expires_at": NOW - timedelta(days=1)}, ""),
    ],
)
def test_a_plan_of_airflow_leads_to_its_run_and_its_approval(
    settings: Settings, facts: dict[str, Any], address: str
) -> None:
    saved(settings)
    plan = kept(settings, asked_in=ASKED, **facts)
    found = Elements(client(settings, root="/air/twofold").get(f"/air/twofold/plans/{plan.id}").text)
    run = "/air/dags/plant.backfill.hours/runs/manual__2013-01-05T00%3A00%3A00%2B00%3A00"
    assert [one for one in found.addresses if "/dags/" in one] == [run + address]
    assert ("approved by ann: it was seen" in "".join(found.text)) == bool(plan.because)
    alone = page(settings, f"/plans/{plan.id}")
    assert not [one for one in alone.addresses if "/dags/" in one]
    assert (ASKED in alone.text) == (not facts), "the address of its run is for Airflow alone"


def test_plans_that_wait_come_first(settings: Settings) -> None:
    saved(settings)
    assert "No plan waits" in page(settings, "/plans").text
    kept(settings, id="backfill-20130104-a", created_at=NOW - timedelta(days=2))
    kept(settings, id="backfill-20130105-b", published_at=NOW)
    found = page(settings, "/plans")
    assert [row[0] for row in found.rows if row][1:] == ["backfill-20130104-a", "backfill-20130105-b"]
    assert "1 plan waits for a person" in found.text
    home = " ".join(" ".join(page(settings, "/").text).split())
    assert "3 things need a person" in home, "a plan, and what the snapshot has"
    assert f"backfill {HOURS} : a plan with 1 rows waits ./twofold plans backfill-20130104-a" in home
    assert client(settings).get("/plans/no-such").status_code == 404


@pytest.mark.parametrize("path", ["/plans", "/plans/backfill-20130105-abc"])
def test_hostile_values_of_a_plan_are_text(settings: Settings, path: str) -> None:
    saved(settings)
    browser = client(settings)
    kept(settings, "calm")
    calm = Elements(browser.get(path).text).tags
    for text in list(hostile())[:40]:
        kept(settings, text)
        assert Elements(browser.get(path).text).tags == calm
