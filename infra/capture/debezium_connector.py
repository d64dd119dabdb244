"""Debezium's PostgreSQL connector: its configuration, its state, and whether it lost changes."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from infra.capture import kafka_connect
from infra.capture.captured_table import MARK_PREFIX, PREFIX, UNCHANGED, Capture, again, snapshot_number
from infra.capture.catalog_changes import lost_since, to_note, unfit_table
from infra.capture.table_catalog import CatalogTable, note_again, note_table, table_today
from infra.errors import CaptureFailed, ConnectUnreachable, StatementRefused, TwofoldError
from infra.postgres.database_connection import address, connected, query
from infra.process.readiness import until_answered
from infra.settings import Settings
from infra.sql.names import POSTGRES

RELEASE_S = 30.0  # how long a stopped connector may hold its slot
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text"
WRITE_MARK = f"SELECT pg_logical_emit_message(false, {POSTGRES.literal(MARK_PREFIX)}, {_NOW})"
"""A mark with the database's time, in microseconds. What was committed before it is before it in each topic."""


@dataclass(frozen=True, kw_only=True)
class CaptureState:
    """The state of a capture.

    Args:
        state: of the connector's task, as Connect says it, or `MISSING`.
        slot: of the database, as `pg_replication_slots` says: `reserved`, `extended`, `unreserved`, `lost`; None: it
            is not there.
        retained_bytes: of the write-ahead log, kept by the database until the connector has it.
        fault: what is wrong; empty when nothing is.
        hint: what to do about it.
    """

    topic: str
    table: str
    state: str
    slot: str | None
    retained_bytes: int
    fault: str = ""
    hint: str = ""


def configuration(settings: Settings, capture: Capture) -> dict[str, str]:
    """The connector's configuration; each that differs from Debezium's default says why."""
    at = address(settings)
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": at.host,
        "database.port": str(at.port),
        "database.user": at.user,
        "database.password": kafka_connect.password_reference(settings),
        "database.dbname": at.dbname,
        "topic.prefix": capture.name,
        "table.include.list": re.escape(capture.table),
        "plugin.name": "pgoutput",
        "slot.name": capture.name,
        "slot.failover": "true" if settings.slot_failover == "on" else "false",
        "publication.name": capture.name,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "initial",
        # By default the connector skips to where the slot stands, and says nothing of what it skipped.
        "offset.mismatch.strategy": "trust_offset",
        # By default truncates are left out.
        "skipped.operations": "none",
        # A value is what the database holds, or refused: nothing is rounded.
        "decimal.handling.mode": "string",
        "time.precision.mode": "microseconds",
        "interval.handling.mode": "string",
        "binary.handling.mode": "bytes",
        "hstore.handling.mode": "json",
        # By default columns of unknown types are left out.
        "include.unknown.datatypes": "true",
        "unavailable.value.placeholder": UNCHANGED,
        # A table without changes would hold back the slot, and the log of the database with it.
        "heartbeat.interval.ms": "10000",
        "heartbeat.action.query": WRITE_MARK
        if capture.writes_marks
        else f"SELECT pg_logical_emit_message(false, {POSTGRES.literal(capture.name)}, '')",
        # The decoder treats deletes; the log is kept for ever, so that no record has to remove others.
        "tombstones.on.delete": "false",
        # A row that is larger than a record may be would stop the connector; one that is too large for its topic is
        # refused there, and reported.
        "producer.override.max.request.size": str(capture.largest_record),
        "producer.override.buffer.memory": str(2 * capture.largest_record + (16 << 20)),
        "max.queue.size.in.bytes": str(64 << 20),
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        "errors.tolerance": "none",
        "poll.interval.ms": "100",
        # After the database was gone; by default 10 s.
        "retriable.restart.connector.wait.ms": "2000",
        **(_outbox_records(capture) if capture.is_outbox else _change_events(capture)),
    }


def _change_events(capture: Capture) -> dict[str, str]:
    """Change events and marks go to the topic as they are."""
    return {
        "message.prefix.include.list": MARK_PREFIX,
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": rf"{re.escape(capture.name)}\.({re.escape(capture.table)}|message)",
        "transforms.route.replacement": capture.topic,
    }


def _outbox_records(capture: Capture) -> dict[str, str]:
    """Each inserted row becomes the record that it holds: its key, its payload as it is, and headers."""
    text = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "message.prefix.exclude.list": ".*",
        "key.converter": text,
        "value.converter": text,
        # Heartbeats are no rows.
        "predicates": "row",
        "predicates.row.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.row.pattern": re.escape(f"{capture.name}.{capture.table}"),
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.predicate": "row",
        "transforms.outbox.route.topic.replacement": capture.topic,
        "transforms.outbox.table.fields.additional.placement": "aggregatetype:header,type:header",
    }


def known(settings: Settings, capture: Capture) -> list[Capture]:
    """The captures for the same topic that Connect knows, by the number of their snapshot.

    Several: the last one replaces the others, and what is gone since their time is still to be removed.

    Raises:
        ConnectUnreachable: retryable.
    """
    names = kafka_connect.ask(settings, "GET", "/connectors") or []
    captures = [replace(capture, snapshot=snapshot_number(name)) for name in names]
    own = [one for one, name in zip(captures, names, strict=True) if one.name == name]
    return sorted(own, key=lambda one: one.snapshot)


def ensure(settings: Settings, capture: Capture, *, timeout_s: float = 180) -> None:
    """Have the connector run with today's configuration; does nothing when it does.

    Raises:
        CaptureFailed: there is no such table, changes of it were lost, the connector stops with an error, or it does
            not run within `timeout_s`.
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    deadline = time.monotonic() + timeout_s
    require_table(settings, capture)
    if _slot(settings, capture)[0] is None and committed_lsn(settings, capture) is None:
        publish(settings, capture)
    require_whole(settings, capture)
    # Refused while the worker joins its group.
    until_answered(lambda: _configure(settings, capture), ConnectUnreachable, timeout_s)
    if _task(settings, capture)[0] == "FAILED":
        kafka_connect.ask(settings, "POST", f"/connectors/{capture.name}/restart?includeTasks=true&onlyFailed=true")
        time.sleep(1)  # until then the failure is still the task's state
    while True:
        now, error = _task(settings, capture)
        if now == "RUNNING":
            return
        if now == "FAILED" or time.monotonic() > deadline:
            raise CaptureFailed(
                f"The capture of {capture.table} for {capture.topic} is {now}: {error or 'it has said nothing yet'}",
                hint=f"See {settings.logs / 'connect.log'}; when its cause is gone, ./twofold up starts it again.",
            )
        time.sleep(0.3)


def ensure_retired(settings: Settings, capture: Capture) -> None:
    """Stop the connector, drop its slot, and keep it as a sign that its successor has not replaced it yet.

    Raises:
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    if capture not in known(settings, capture):
        stopped = {"name": capture.name, "config": configuration(settings, capture), "initial_state": "STOPPED"}
        kafka_connect.ask(settings, "POST", "/connectors", stopped)
    kafka_connect.ask(settings, "PUT", f"/connectors/{capture.name}/stop")
    _drop_slot(settings, capture.name)


def wait_snapshot(settings: Settings, capture: Capture, timeout_s: float) -> None:
    """Return when every row of the snapshot is in the topic.

    Raises:
        CaptureFailed: the connector failed, or it takes longer.
        ConnectUnreachable: retryable.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        offset = _offset(settings, capture)
        if offset and ("snapshot" not in offset or offset.get("snapshot_completed")):
            return
        now, error = _task(settings, capture)
        if now == "FAILED" or time.monotonic() > deadline:
            raise CaptureFailed(
                f"Snapshot {capture.snapshot} of {capture.table} for {capture.topic} is not complete: "
                f"the connector is {now}{f', {error}' if error else ''}.",
                hint=f"See {settings.logs / 'connect.log'}; ./twofold recapture {capture.topic} continues.",
            )
        time.sleep(0.3)


def publish(settings: Settings, capture: Capture) -> None:
    """Has the database publish the table: partitions as their root, and what it computes of other columns.

    What the catalog says of the table then is noted with the publication: before the snapshot, in one transaction,
    in which nothing else alters the table.
    """
    names = {"name": sql.Identifier(capture.name), "table": sql.Identifier(*capture.table.split("."))}
    inserts = ", publish = 'insert'" if capture.is_outbox else ""
    with connected(settings) as connection, connection.transaction():
        # Without them, updates of a table with whole replica identity would fail.
        generated = ", publish_generated_columns = stored" if connection.info.server_version >= 180_000 else ""
        made = f"FOR TABLE {{table}} WITH (publish_via_partition_root = true{generated}{inserts})"
        connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {name}").format(**names))
        connection.execute(sql.SQL(f"CREATE PUBLICATION {{name}} {made}").format(**names))
        note_table(connection, capture.table, capture.name)


def _configure(settings: Settings, capture: Capture) -> None:
    configured = configuration(settings, capture)
    current = kafka_connect.ask(settings, "GET", f"/connectors/{capture.name}/config")
    if current is None or {k: v for k, v in current.items() if k != "name"} != configured:
        kafka_connect.ask(settings, "PUT", f"/connectors/{capture.name}/config", configured)


def state(settings: Settings, capture: Capture) -> CaptureState:
    """The state of the newest capture for the topic.

    Raises:
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    captures = known(settings, capture)
    capture = captures[-1] if captures else capture
    now, error = _task(settings, capture)
    slot, retained, *_ = _slot(settings, capture)
    fault = hint = ""
    try:
        (require_whole if captures else require_table)(settings, capture)
    except CaptureFailed as failed:
        fault, hint = failed.message, failed.hint or ""
    if not fault and now != "RUNNING":
        fault, hint = f"the connector is {now}{f': {error}' if error else ''}", "./twofold up starts it again."
    if not fault and len(captures) > 1:
        fault = f"snapshot {capture.snapshot} is not finished: rows that are gone may still be in its tables"
        hint = f"`./twofold recapture {capture.topic}` continues."
    return CaptureState(
        topic=capture.topic,
        table=capture.table,
        state=now,
        slot=slot,
        retained_bytes=retained,
        fault=fault,
        hint=hint,
    )


def require_table(settings: Settings, capture: Capture) -> None:
    """Refuse to capture what is not there, or is not what is declared.

    A connector would wait for a missing table, and miss its first rows.

    Raises:
        CaptureFailed: the database has no such table, its key or its columns are others, or it is no outbox.
        DatabaseUnreachable: retryable.
    """
    _require_fit(capture, table_today(settings, capture.table, capture.name))


def _require_fit(capture: Capture, found: tuple[CatalogTable, CatalogTable | None] | None) -> CatalogTable:
    if found is None:
        raise CaptureFailed(
            f"{capture.topic} captures the table {capture.table}, which the database does not have.",
            hint="Create the table, then ./twofold up.",
            topic=capture.topic,
        )
    for why, hint in unfit_table(capture, found[0]):
        raise CaptureFailed(f"{capture.topic} cannot capture its table: {why}", hint=hint, topic=capture.topic)
    return found[0]


def require_whole(settings: Settings, capture: Capture) -> None:
    """Refuse to go on where changes were lost, by a gap in the log or by what is in no log.

    What a look that finds nothing wrong has seen of partitions is noted for the next one.

    Raises:
        CaptureFailed: as `require_table` and `require_no_gap`; or the catalog says another thing than before the
            snapshot.
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    found = table_today(settings, capture.table, capture.name)
    today = _require_fit(capture, found)
    require_no_gap(settings, capture)
    noted = found[1] if found else None
    lost = lost_since(settings, capture, noted, today)
    if lost or noted is None:
        raise CaptureFailed(f"{lost}.", hint=f"{again(capture.topic)}.", topic=capture.topic)
    now = to_note(noted, today)
    if now is not None:
        note_again(settings, capture.name, now)


def require_no_gap(settings: Settings, capture: Capture) -> None:
    """Refuse to go on where changes were lost: a connector that has a position, and a slot that has not.

    Raises:
        CaptureFailed: the slot is gone, was invalidated, or begins behind the connector's position; or the log ends
            before it.
    """
    # The slot before the position, which it follows: a connector that goes on in between has no gap.
    slot, _, confirmed, end = _slot(settings, capture)
    position = committed_lsn(settings, capture)
    if position is None:
        return
    if slot is None or slot in ("lost", "unreserved"):
        what = "is gone" if slot is None else f"is {slot}"
        raise CaptureFailed(
            f"The replication slot {capture.name} {what}: changes after LSN {position} may be lost.",
            hint=f"{again(capture.topic)}.",
            topic=capture.topic,
        )
    if confirmed > position:
        raise CaptureFailed(
            f"The replication slot {capture.name} begins at LSN {confirmed}, beyond the connector's {position}: "
            "changes between are lost.",
            hint=f"{again(capture.topic)}.",
            topic=capture.topic,
        )
    if position > end and position > (end := _slot(settings, capture)[3]):
        raise CaptureFailed(
            f"The database's log ends at LSN {end}, before the connector's {position}: the database was restored, and "
            "changes up to there would be passed over.",
            hint=f"{again(capture.topic)}.",
            topic=capture.topic,
        )


def committed_lsn(settings: Settings, capture: Capture) -> int | None:
    """The LSN up to which Connect has recorded the connector's progress; None: there is no connector, or none yet."""
    offset = _offset(settings, capture)
    return max(
        (int(offset[name]) for name in ("lsn", "lsn_proc", "lsn_commit") if offset.get(name) is not None), default=None
    )


def undeclared_slots(settings: Settings, captures: Iterable[Capture]) -> list[str]:
    """Replication slots of captures that are no topic's; each keeps the database's log from its place on.

    Args:
        captures: of all declared topics; where there are none, nothing is asked.

    Raises:
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    declared = {name for capture in captures for name in (capture.name, *(c.name for c in known(settings, capture)))}
    if not declared:
        return []
    rows = query(settings, "SELECT slot_name FROM pg_replication_slots WHERE starts_with(slot_name, %s)", [PREFIX])
    return sorted({name for (name,) in rows} - declared)


def remove(settings: Settings, name: str) -> None:
    """Remove a connector with its slot and its publication; what it captured stays in its topic.

    Raises:
        ConnectUnreachable, DatabaseUnreachable: retryable.
        StatementRefused: the database refuses, as while a connector of another worker reads the slot.
    """
    if kafka_connect.ask(settings, "GET", f"/connectors/{name}") is not None:
        kafka_connect.ask(settings, "DELETE", f"/connectors/{name}")
    _drop_slot(settings, name)


def _drop_slot(settings: Settings, name: str) -> None:
    """Drop a slot and its publication, as soon as the connector that was stopped no longer connects again."""
    slots = "FROM pg_replication_slots WHERE slot_name = %s"

    def drop() -> None:
        with connected(settings) as connection:
            connection.execute(f"SELECT pg_terminate_backend(active_pid) {slots} AND active", [name])
            connection.execute(f"SELECT pg_drop_replication_slot(slot_name) {slots}", [name])
            connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))

    until_answered(drop, StatementRefused, RELEASE_S)


def _task(settings: Settings, capture: Capture) -> tuple[str, str]:
    status = kafka_connect.ask(settings, "GET", f"/connectors/{capture.name}/status")
    if status is None:
        return "MISSING", ""
    tasks = status["tasks"] or [status["connector"]]
    trace = str(tasks[0].get("trace", ""))
    causes = [line for line in trace.splitlines() if not line.startswith("\t")]
    return ("STARTING" if not status["tasks"] else str(tasks[0]["state"])), causes[-1] if causes else ""


def _offset(settings: Settings, capture: Capture) -> dict[str, Any]:
    """The connector's place in the database's log, as Connect has recorded it; empty while it has none."""
    answer = kafka_connect.ask(settings, "GET", f"/connectors/{capture.name}/offsets") or {}
    return next((entry["offset"] for entry in answer.get("offsets", ()) if entry.get("offset")), {})


def _slot(settings: Settings, capture: Capture) -> tuple[str | None, int, int, int]:
    """The row of `pg_replication_slots` for a slot, the bytes of the log that are kept for it, two places in the log.

    They are the LSN from which the slot goes on, and where the log ends.
    """
    rows = query(
        settings,
        "SELECT wal_status, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, "
        "coalesce(confirmed_flush_lsn - '0/0'::pg_lsn, 0)::bigint, (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint "
        "FROM pg_replication_slots WHERE slot_name = %s",
        [capture.name],
    )
    return rows[0] if rows else (None, 0, 0, 0)


def main(arguments: list[str]) -> int:
    """`remove NAME`: give up a connector, its slot and its publication."""
    match arguments:
        case ["remove", name] if name.startswith(PREFIX):
            try:
                remove(Settings.from_environment(), name)
            except TwofoldError as error:
                print(error, file=sys.stderr)
                return error.exit_code
            return 0
        case _:
            print(f"Usage: python -m infra.capture.debezium_connector remove {PREFIX}<number>_<topic>", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
