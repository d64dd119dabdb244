"""A captured table is declared by its columns; what cannot be exact is refused when the file is loaded."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.errors import BadDeclaration
from infra.settings import ROOT
from tables.engine.capture.captured_topic import captures, changes_of
from tables.engine.declarations.declaration import Topic
from tables.engine.declarations.registry import Registry, load
from tests.tables.declared import bound_as, written

COLUMNS = {"id": "long", "name": "string"}


def registry(topic: Topic) -> Registry:
    return Registry({topic.full_name: topic}, {})


def test_declarations_load_no_code_of_servers() -> None:
    program = (
        "import sys, tables\n"
        "servers = {'infra.capture.kafka_connect', 'infra.process.supervisor', 'urllib.request', 'xmlrpc'}\n"
        "sys.exit(', '.join(sorted(servers & set(sys.modules))) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_all_columns_but_the_key_may_be_null() -> None:
    topic = changes_of("public.people", columns={**COLUMNS, "tags": "array<int>"}, primary_key=["id"])
    assert {name: topic.schema[name] for name in ("id", "name", "tags")} == {
        "id": "long",
        "name": "string?",
        "tags": "array<int?>?",
    }
    assert (topic.partitions, topic.unknown_fields, topic.event_time) == (1, "keep", "cdc_at")


def test_a_capture_is_named_after_its_topic() -> None:
    topic = bound_as(changes_of("public.people", columns=COLUMNS, primary_key=["id"]), "people", "bank")
    [capture] = captures(registry(topic))
    assert (capture.name, capture.topic, capture.table) == ("twofold_1_bank_people", "bank.people", "public.people")


CAPTURED = '''\
"""Changes of the people."""
from tables import changes_of

TOPIC = changes_of("public.people", columns={"id": "long"}, primary_key=["id"])
'''


def test_only_a_name_that_is_too_long_for_a_slot_is_left_out(tmp_path: Path) -> None:
    """A slot has 63 letters, `twofold_100_` takes 12 of them."""
    long, longest = "p" * 47, "p" * 46
    found = load(written(tmp_path, {f"bank/{long}.py": CAPTURED, f"bank/{longest}.py": CAPTURED}))
    assert list(found.topics) == [f"bank.{longest}"]
    assert [*found.faults] == [f"bank.{long}"]
    assert f"{long}.py" in str(found.faults[f"bank.{long}"])
    assert "has 52 letters; expected at most 51" in str(found.faults[f"bank.{long}"])
    assert [len(replace(capture, snapshot=100).name) for capture in captures(found)] == [63]


def test_captures_that_would_share_a_slot_are_left_out(tmp_path: Path) -> None:
    """Also the first of them: the other one may be what the slot is used for now."""
    names = ("a/b_c.py", "a_b/c.py", "a/b.py")
    found = load(written(tmp_path, dict.fromkeys(names, CAPTURED)))
    assert list(found.topics) == ["a.b"]
    assert [*found.faults] == ["a.b_c", "a_b.c"]
    for name, fault in found.faults.items():
        assert "a.b_c and a_b.c, which are captured, would share the replication slot twofold_1_a_b_c" in str(fault)
        assert f"{name.replace('.', '/')}.py" in str(fault)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"table": "people"}, "schema.name"),
        ({"table": "public.people; DROP TABLE people"}, "schema.name"),
        ({"primary_key": []}, "list of columns"),
        ({"primary_key": "id"}, "list of columns"),
        ({"primary_key": ["number"]}, "lacks"),
        ({"columns": {"id": "long?"}}, "never null"),
        ({"columns": {"id": "double"}}, "single exact value"),
        ({"columns": {**COLUMNS, "cdc_op": "string"}}, "those of the change"),
        ({"columns": {**COLUMNS, "prices": "array<double>"}}, "no column of a database"),
        ({"columns": {**COLUMNS, "all": "struct<a: long>"}}, "no column of a database"),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], expected: str) -> None:
    given = {"table": "public.people", "columns": COLUMNS, "primary_key": ["id"], **changes}
    with pytest.raises(BadDeclaration, match=expected):
        changes_of(given.pop("table"), **given)


def test_a_captured_topic_is_declared_by_changes_of_alone() -> None:
    with pytest.raises(BadDeclaration, match="captures"):
        Topic(
            encoding="debezium",
            schema={"id": "long", "at": "timestamp"},
            event_time="at",
            message_key="id",
            dedup_keys=["id"],
        )
