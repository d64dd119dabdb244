"""A captured table is declared by its columns; what cannot be exact is refused when the file is loaded."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from infra.errors import BadDeclaration
from infra.settings import ROOT
from tables.engine.capture.captured_topic import captures, changes_of
from tables.engine.declarations.declaration import Topic
from tables.engine.declarations.registry import Registry
from tests.tables.declared import bound_as

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


def test_a_name_that_is_too_long_for_a_slot_is_refused() -> None:
    topic = bound_as(changes_of("public.people", columns=COLUMNS, primary_key=["id"]), "p" * 60, "bank")
    with pytest.raises(BadDeclaration, match="too long"):
        captures(registry(topic))


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
