"""Records whose schemas a real registry has, Apicurio, are read as those whose schemas are files."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests import ROOT
from tests.infra.conftest import free_port
from tests.infra.encodings.subjects import decoded, framed, reason, write_schemas
from tests.servers import wait_until
from twofold.infra.encodings import schema_files
from twofold.infra.errors import RegistryUnreachable
from twofold.infra.java import java, java_version
from twofold.infra.kafka.schema_registry import SchemaRegistry
from twofold.infra.project import jars
from twofold.tables.declare.topic import Topic

PLACE = ROOT / ".twofold" / "registry"
LOCK = Path(__file__).with_name("apicurio.lock")
LEAST_JAVA = 21

pytestmark = [pytest.mark.fuzz, pytest.mark.platform]
"""It fetches the registry, 155 MB."""

OLD = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "sensor", "type": "string"},
        {"name": "read_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
NEW = OLD | {"fields": [*OLD["fields"], {"name": "unit", "type": ["null", "string"], "default": None}]}
COMMON = 'syntax = "proto3"; package units; message Unit { string name = 1; }'
READING = 'syntax = "proto3"; import "units.proto"; message Reading { string sensor = 1; units.Unit unit = 2; }'


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Confluent's interface of an Apicurio that keeps its schemas in memory."""
    launcher = java()
    if (version := java_version(launcher) or 0) < LEAST_JAVA:
        pytest.skip(f"Apicurio needs Java {LEAST_JAVA}, {launcher} is Java {version}: set JAVA_HOME")
    [archive] = pinned = jars.pinned(LOCK)
    PLACE.mkdir(parents=True, exist_ok=True)
    if jars.problems(PLACE, pinned):
        jars.replace(PLACE, pinned)
    folder, port = tmp_path_factory.mktemp("apicurio"), free_port()
    with tarfile.open(PLACE / archive.path) as packed:
        packed.extractall(folder, filter="data")
    place = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    options = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1", "-Xmx512m"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [launcher, *options, "-jar", folder / "quarkus-run.jar"], cwd=folder, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: _answers(place, process, folder / "log"), timeout_s=120)
        yield place
    finally:
        process.kill()
        process.wait()


def _answers(place: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()[-3_000:]
    try:
        return SchemaRegistry(place).find(1_000_000) is None
    except RegistryUnreachable:
        return False


def register(place: str, subject: str, schema: str, **more: Any) -> int:
    """Give a subject its next version; the id of the schema."""
    request = urllib.request.Request(
        f"{place}/subjects/{subject}/versions",
        data=json.dumps({"schema": schema, **more}).encode(),
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return int(json.load(answer)["id"])


def test_a_record_of_a_schema_that_only_the_registry_has_is_decoded(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_files, "FOLDER", tmp_path)
    old = register(url, "readings-value", json.dumps(OLD))
    new = register(url, "readings-value", json.dumps(NEW))
    assert old != new
    write_schemas(tmp_path, "readings-value", ".avsc", {new: json.dumps(NEW)})
    topic = Topic(
        encoding="avro", subject="readings-value", event_time="read_at", message_key="sensor", dedup_keys=["sensor"]
    )
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(OLD), {"sensor": "a", "read_at": 1_000_000})

    monkeypatch.delenv("TWOFOLD_SCHEMA_REGISTRY", raising=False)
    assert f"the schema {old} is unknown" in reason(decoded(topic, framed(old, out.getvalue())))

    monkeypatch.setenv("TWOFOLD_SCHEMA_REGISTRY", url)
    found = decoded(topic, framed(old, out.getvalue()))
    assert found.rejected.num_rows == 0
    assert (found.accepted["sensor"].to_pylist(), found.accepted["unit"].to_pylist()) == (["a"], [None])
    unknown = decoded(topic, framed(999_999, out.getvalue()))
    assert "and the registry has it not" in reason(unknown)


def test_what_a_protobuf_schema_imports_is_found_in_its_own_subject(url: str) -> None:
    register(url, "units", COMMON, schemaType="PROTOBUF")
    reference = {"name": "units.proto", "subject": "units", "version": 1}
    id_ = register(url, "protobuf-value", READING, schemaType="PROTOBUF", references=[reference])
    found = SchemaRegistry(url).find(id_)
    assert found is not None
    text, [(name, imported)] = found
    assert (name, "message Reading" in text, "message Unit" in imported) == ("units.proto", True, True)


def test_a_guid_is_unknown_to_a_registry_without_guids(url: str) -> None:
    assert SchemaRegistry(url).find("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0") is None
