"""Records of the shapes of GitHub's webhooks: a topic of their sample, tables of it, their replay and their rebuild."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import rewrites
from tests.plant import START
from tests.support.published_webhooks import examples
from tests.tables.declared import written
from twofold.batch.plan.rebuild_table import rebuild_in_shadow
from twofold.batch.rewrite import replay
from twofold.cli.writing.sample import read_sample
from twofold.cli.writing.scaffold import write_domain, write_topic
from twofold.infra.duckdb_session import query
from twofold.infra.project.settings import Settings
from twofold.streaming.rebuild.reingest import reingest
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOPIC = "hub.deliveries"
ANN = {"login": "ann", "id": 1, "type": "User", "site_admin": False, "email": None}
BO = {"login": "bo", "id": 2**40, "type": "Bot", "site_admin": True, "email": "bo@example.org"}
REPOSITORY = {
    "id": 9,
    "full_name": "ann/plant",
    "private": False,
    "owner": ANN,
    "license": {"key": "mit", "spdx_id": "MIT"},
    "topics": ["a", "b"],
    "homepage": None,
    "created_at": "2012-01-31T10:00:00Z",
}
COMMIT = {
    "id": "f00",
    "message": 'Say "ü"\n',
    "timestamp": "2012-12-31T23:59:59+02:00",
    "author": {"name": "Ann", "email": "ann@example.org", "username": "ann"},
    "distinct": True,
    "added": ["a.py"],
    "removed": [],
    "modified": [],
}
LABELS = [{"id": 5, "name": "bug", "color": "ff0000", "default": True, "description": None}]
ISSUE = {"number": 3, "title": "Wrong", "user": BO, "labels": LABELS, "assignee": None, "milestone": None, "body": None}
END = {"ref": "main", "sha": "f00", "user": ANN, "repo": {**REPOSITORY, "owner": BO}}
PULL = {
    "number": 4,
    "user": ANN,
    "body": None,
    "head": {**END, "repo": None},
    "base": END,
    "requested_reviewers": [BO],
    "labels": [],
    "merged_at": None,
    "_links": {"self": {"href": "pulls/4"}},
}
ASSET = {"id": 7, "name": "a.zip", "size": 2**33, "uploader": BO, "label": None, "created_at": "2012-12-31T10:00:00Z"}
PAYLOADS: list[tuple[str, dict[str, Any]]] = [
    ("push", {"ref": "refs/heads/main", "forced": False, "commits": [COMMIT, {**COMMIT, "id": "f01"}]}),
    ("push", {"ref": "refs/heads/gone", "forced": True, "commits": [], "head_commit": None}),
    ("issues", {"action": "opened", "issue": ISSUE}),
    ("issues", {"action": "labeled", "issue": {**ISSUE, "body": "It is.", "assignee": ANN}, "label": LABELS[0]}),
    ("pull_request", {"action": "opened", "number": 4, "pull_request": PULL}),
    ("pull_request", {"action": "closed", "pull_request": {**PULL, "merged_at": "2013-01-01T00:00:00Z", "body": ""}}),
    ("release", {"action": "published", "release": {"id": 6, "tag_name": "v1", "body": None, "assets": [ASSET]}}),
    ("star", {"action": "created", "starred_at": "2013-01-01T00:00:01Z"}),
    ("star", {"action": "deleted", "starred_at": None}),
]


def deliveries(payloads: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """What a receiver of webhooks sends on: one record a minute, with the event's name, which came in a header."""
    return [
        {
            "delivery": f"d{n}",
            "event": event,
            "received_at": f"{START + timedelta(minutes=n):%Y-%m-%dT%H:%M:%SZ}",
            "payload": payload,
        }
        for n, (event, payload) in enumerate(payloads)
    ]


COMMITS = '''\
"""Each commit of a push."""
from twofold import F, table


@table(primary_key=["delivery", "received_at", "nth"], event_time="received_at", recompute_by=["delivery"])
def commits(deliveries):
    pushes = deliveries.where("event = 'push'")
    commit = F.posexplode("payload.commits").alias("nth", "commit")
    return pushes.select("delivery", "received_at", "payload.repository", commit)
'''
NEWEST = '''\
"""The newest delivery of each kind, with all that it has."""
from twofold import table


@table(primary_key=["event"], sequence_by=["received_at", "delivery"], recompute_by=["event"])
def newest(deliveries):
    return deliveries
'''


def registry_of(folder: Path, records: Sequence[dict[str, Any]], **files: str) -> Registry:
    """The topic that is inferred of these records, and tables."""
    (folder / "tables").mkdir(parents=True)
    write_domain("hub", root=folder)
    write_topic(
        "deliveries", read_sample((json.dumps(record) for record in records), depth=9), domain="hub", root=folder
    )
    written(folder / "tables", {f"hub/{name}.py": text for name, text in files.items()})
    return load(folder / "tables").require_sound()


def differences(cell: Any, sent: Any, rest: Any, path: str = "") -> Iterator[str]:
    """Where a value in the table, with what `_rest` has of it, is not what was sent; null and absence are the same."""
    if isinstance(cell, dict) and isinstance(sent, dict):
        for name in cell.keys() | sent.keys():
            known, more = name in cell, rest.get(name) if isinstance(rest, dict) else None
            if known:
                yield from differences(cell[name], sent.get(name), more, f"{path}.{name}")
            elif sent[name] != more:
                yield f"{path}.{name}: {more!r}, sent {sent[name]!r}"
    elif isinstance(cell, list) and isinstance(sent, list) and len(cell) == len(sent):
        for n, (one, other) in enumerate(zip(cell, sent, strict=True)):
            more = rest.get(str(n)) if isinstance(rest, dict) else None
            yield from differences(one, other, more, f"{path}[{n}]")
    elif isinstance(cell, datetime) and isinstance(sent, str):
        if cell != datetime.fromisoformat(sent):
            yield f"{path}: {cell}, sent {sent}"
    elif cell != sent and not (isinstance(cell, str) and json.loads(cell) == sent):
        yield f"{path}: {cell!r}, sent {sent!r}"


def require_as_sent(world: World, records: Sequence[dict[str, Any]]) -> None:
    """Every event is the record that was sent; none is in quarantine."""
    rows = {row["delivery"]: row for row in world.rows(TOPIC).to_pylist() if row["delivery"]}
    assert len(rows) == len(records)
    for record in records:
        row = rows[record["delivery"]]
        rest = json.loads(row["_rest"] or "{}")
        assert list(differences({name: row[name] for name in record}, record, rest)) == []


def test_webhooks_go_from_a_sample_through_tables_replay_and_rebuild(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = deliveries([(event, {**body, "repository": REPOSITORY, "sender": BO}) for event, body in PAYLOADS])
    world = World(spark, settings, "hub", registry_of(tmp_path, records, commits=COMMITS, newest=NEWEST))
    surprise = deliveries([("push", {"commits": [{**COMMIT, "url": "u"}], "repository": REPOSITORY, "sender": BO})])
    surprise[0] |= {"delivery": "d99", "received_at": "2013-01-01T00:20:00Z"}
    values = [json.dumps(record).encode() for record in [*records, *surprise]]
    world.append({TOPIC: values[:5]})
    world.maintain(["commits", "newest"])
    world.append({TOPIC: values[5:]})
    world.maintain(["commits", "newest"])
    assert [o.changed for o in world.reconcile(["commits", "newest"])] == [0, 0]
    require_as_sent(world, [*records, *surprise])
    found = query(
        """SELECT delivery, nth, commit.id, commit.author.name, commit.timestamp::VARCHAR AS at, repository.license.key,
        len(commit.added) FROM commits ORDER BY delivery, nth""",
        commits=world.rows("hub.commits"),
    )
    at = "2012-12-31 21:59:59+00"
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("d0", 0, "f00", "Ann", at, "mit", 1),
        ("d0", 1, "f01", "Ann", at, "mit", 1),
        ("d99", 0, "f00", "Ann", at, "mit", 1),
    ]
    found = query(
        """SELECT event, delivery, payload.issue.labels[1].name AS label, payload.pull_request.base.repo.owner.login,
        payload.pull_request.head.repo, payload.release.assets[1].size FROM newest ORDER BY event""",
        newest=world.rows("hub.newest"),
    )
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("issues", "d3", "bug", None, None, None),
        ("pull_request", "d5", None, "bo", None, None),
        ("push", "d99", None, None, None, None),
        ("release", "d6", None, None, None, 2**33),
        ("star", "d8", None, None, None, None),
    ]
    assert {row["_rest"] for row in world.rows(TOPIC).to_pylist()} == {
        None,
        '{"payload":{"commits":{"0":{"url":"u"}}}}',
    }

    monkeypatch.setattr(replay, "Log", lambda platform, topics: world)
    platform = Platform(spark, world.lake, world.registry)
    assert [o for o in rewrites.replay(platform, world.registry.topics[TOPIC]) if o.changed] == []
    for name in ("commits", "newest"):
        assert (
            rewrites.promote(rebuild_in_shadow(platform, world.registry.find_table(name), world, reingest)).changed == 0
        )


@pytest.mark.fuzz
@pytest.mark.skipif(not shutil.which("npm"), reason="no npm, which fetches the examples")
def test_every_published_example_of_a_webhook_is_an_event(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """As one topic. Signed and sent, they are the subject of `features/webhooks/tests/test_receiver.py`."""
    records = deliveries(examples(tmp_path / "fetched"))
    assert len(records) == 329
    world = World(spark, settings, "hub", registry_of(tmp_path / "declared", records))
    world.append({TOPIC: [json.dumps(record).encode() for record in records]})
    require_as_sent(world, records)
