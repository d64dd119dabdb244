"""Debezium's PostgreSQL connector: its configuration, its state, and whether it lost changes."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from psycopg import sql

from twofold.features.capture import kafka_connect
from twofold.features.capture.captured_table import (
    MARK_PREFIX,
    PREFIX,
    UNCHANGED,
    Capture,
    again,
    snapshot_number,
)
from twofold.features.capture.catalog_changes import lost_since, to_note, unfit_table
from twofold.features.capture.log_marks import MARK_CHANGES
from twofold.features.capture.table_catalog import CatalogTable, note_again, note_table, table_today
from twofold.infra import COMMAND
from twofold.infra.errors import CaptureFailed, ConnectUnreachable, StatementRefused, TwofoldError
from twofold.infra.postgres.database_connection import address, connected, query
from twofold.infra.process.readiness import until_answered
from twofold.infra.project.settings import Settings
from twofold.status.parts.snapshot import CaptureState
from twofold_algebra.sql.names import POSTGRES

RELEASE_S = 30.0  # how long a stopped connector may hold its slot


def configuration(settings: Settings, capture: Capture) -> dict[str, str]:
    """Returns the connector's configuration; a comment explains each value that differs from Debezium's default."""
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
        # The default skips silently to the position of the slot.
        "offset.mismatch.strategy": "trust_offset",
        # The default leaves out truncates.
        "skipped.operations": "none",
        # A value is exact, or refused: nothing is rounded.
        "decimal.handling.mode": "string",
        "time.precision.mode": "microseconds",
        "interval.handling.mode": "string",
        "binary.handling.mode": "bytes",
        "hstore.handling.mode": "json",
        # The default leaves out columns of unknown types.
        "include.unknown.datatypes": "true",
        "unavailable.value.placeholder": UNCHANGED,
        # A table without changes would hold back the slot, and the log of the database with it.
        "heartbeat.interval.ms": "10000",
        "heartbeat.action.query": MARK_CHANGES
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
    """Returns the options that route change events and marks to the topic unchanged."""
    return {
        "message.prefix.include.list": MARK_PREFIX,
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": rf"{re.escape(capture.name)}\.({re.escape(capture.table)}|message)",
        "transforms.route.replacement": capture.written_topic,
    }


def _outbox_records(capture: Capture) -> dict[str, str]:
    """Returns the options that turn each inserted row into the record in it: key, unchanged payload, headers."""
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
        "transforms.outbox.route.topic.replacement": capture.written_topic,
        "transforms.outbox.table.fields.additional.placement": "aggregatetype:header,type:header",
    }


def known(settings: Settings, capture: Capture) -> list[Capture]:
    """Lists the captures for the same topic that Connect knows, ordered by the number of their snapshot.

    If there are several, the last one replaces the others, and rows deleted since are still to be removed.

    Raises:
        ConnectUnreachable: retryable.
    """
    names = kafka_connect.ask(settings, "GET", "/connectors") or []
    captures = [replace(capture, snapshot=snapshot_number(name)) for name in names]
    own = [one for one, name in zip(captures, names, strict=True) if one.name == name]
    return sorted(own, key=lambda one: one.snapshot)


def ensure(settings: Settings, capture: Capture, *, timeout_s: float = 180) -> None:
    """Creates, updates or restarts the connector, so that it runs with the current configuration.

    Raises:
        CaptureFailed: the table is missing, changes of it were lost, the connector stops with an error, or it does not
            run within `timeout_s`.
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
                hint=f"See {settings.logs / 'connect.log'}; when its cause is gone, {COMMAND} up starts it again.",
            )
        time.sleep(0.3)


def ensure_retired(settings: Settings, capture: Capture) -> None:
    """Stops the connector and drops its slot, but keeps the connector until its successor has replaced it.

    Raises:
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    if capture not in known(settings, capture):
        stopped = {"name": capture.name, "config": configuration(settings, capture), "initial_state": "STOPPED"}
        kafka_connect.ask(settings, "POST", "/connectors", stopped)
    kafka_connect.ask(settings, "PUT", f"/connectors/{capture.name}/stop")
    _drop_slot(settings, capture.name)


def wait_snapshot(settings: Settings, capture: Capture, timeout_s: float) -> None:
    """Waits until every row of the snapshot is in the topic.

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
                hint=f"See {settings.logs / 'connect.log'}; {COMMAND} recapture {capture.topic} continues.",
            )
        time.sleep(0.3)


def publish(settings: Settings, capture: Capture) -> None:
    """Publishes the table in the database: partitions as their root, and stored generated columns.

    The table's catalog entry is noted with the publication, before the snapshot and in one transaction, in which no
    other session can alter the table.
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
    """Returns the state of the newest capture for the topic.

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
        fault, hint = f"the connector is {now}{f': {error}' if error else ''}", f"{COMMAND} up starts it again."
    if not fault and len(captures) > 1:
        fault = f"snapshot {capture.snapshot} is not finished: rows that are gone may still be in its tables"
        hint = f"`{COMMAND} recapture {capture.topic}` continues."
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
    """Refuses to capture a table that does not exist or differs from its declaration.

    A connector would wait for a missing table, and miss its first rows.

    Raises:
        CaptureFailed: the database has no such table, its key or columns differ, or it is no outbox.
        DatabaseUnreachable: retryable.
    """
    _require_fit(capture, table_today(settings, capture.table, capture.name))


def _require_fit(capture: Capture, found: tuple[CatalogTable, CatalogTable | None] | None) -> CatalogTable:
    if found is None:
        raise CaptureFailed(
            f"{capture.topic} captures the table {capture.table}, which the database does not have.",
            hint=f"Create the table, then {COMMAND} up.",
            topic=capture.topic,
        )
    for why, hint in unfit_table(capture, found[0]):
        raise CaptureFailed(f"{capture.topic} cannot capture its table: {why}", hint=hint, topic=capture.topic)
    return found[0]


def require_whole(settings: Settings, capture: Capture) -> None:
    """Refuses to continue if changes were lost, by a gap in the log or by a change that is in no log.

    A check without findings notes the partitions that it has seen, for the next one.

    Raises:
        CaptureFailed: as `require_table` and `require_no_gap`; or the catalog differs from that before the snapshot.
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    of_catalog = table_today(settings, capture.table, capture.name)
    today = _require_fit(capture, of_catalog)
    require_no_gap(settings, capture)
    noted = of_catalog[1] if of_catalog else None
    lost = lost_since(settings, capture, noted, today)
    if lost or noted is None:
        raise CaptureFailed(f"{lost}.", hint=f"{again(capture.topic)}.", topic=capture.topic)
    now = to_note(noted, today)
    if now is not None:
        note_again(settings, capture.name, now)


def require_no_gap(settings: Settings, capture: Capture) -> None:
    """Refuses to continue if the connector has a position and the slot does not have the changes after it.

    Raises:
        CaptureFailed: the slot is gone, was invalidated, or begins after the connector's position; or the log ends
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
    """Returns the LSN up to which Connect has recorded the connector's progress; None if it has recorded none."""
    offset = _offset(settings, capture)
    return max(
        (int(offset[name]) for name in ("lsn", "lsn_proc", "lsn_commit") if offset.get(name) is not None), default=None
    )


def undeclared_slots(settings: Settings, captures: Iterable[Capture]) -> list[str]:
    """Lists the replication slots of captures that belong to no declared topic; each makes the database keep its log.

    Args:
        captures: of all declared topics; if there are none, the database is not asked.

    Raises:
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    declared = {name for capture in captures for name in (capture.name, *(c.name for c in known(settings, capture)))}
    if not declared:
        return []
    rows = query(settings, "SELECT slot_name FROM pg_replication_slots WHERE starts_with(slot_name, %s)", [PREFIX])
    return sorted({name for (name,) in rows} - declared)


def remove(settings: Settings, name: str) -> None:
    """Removes a connector with its slot and its publication; captured records stay in the topic.

    Raises:
        ConnectUnreachable, DatabaseUnreachable: retryable.
        StatementRefused: the database refuses, for example while a connector of another worker reads the slot.
    """
    if kafka_connect.ask(settings, "GET", f"/connectors/{name}") is not None:
        kafka_connect.ask(settings, "DELETE", f"/connectors/{name}")
    _drop_slot(settings, name)


def _drop_slot(settings: Settings, name: str) -> None:
    """Drops a slot and its publication, once the stopped connector no longer reconnects."""
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
    """Returns the connector's position in the database's log, as recorded by Connect; empty if it has none."""
    answer = kafka_connect.ask(settings, "GET", f"/connectors/{capture.name}/offsets") or {}
    return next((entry["offset"] for entry in answer.get("offsets", ()) if entry.get("offset")), {})


def _slot(settings: Settings, capture: Capture) -> tuple[str | None, int, int, int]:
    """Returns a slot's `wal_status`, the bytes of log kept for it, the LSN at which it continues, and the last LSN."""
    rows = query(
        settings,
        "SELECT wal_status, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, "
        "coalesce(confirmed_flush_lsn - '0/0'::pg_lsn, 0)::bigint, (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint "
        "FROM pg_replication_slots WHERE slot_name = %s",
        [capture.name],
    )
    return rows[0] if rows else (None, 0, 0, 0)


def main(arguments: list[str]) -> int:
    """Runs the command line: `remove NAME` removes a connector, its slot and its publication."""
    match arguments:
        case ["remove", name] if name.startswith(PREFIX):
            try:
                remove(Settings.from_environment(), name)
            except TwofoldError as error:
                print(error, file=sys.stderr)
                return error.exit_code
            return 0
        case _:
            print(
                f"Usage: python -m twofold.features.capture.debezium_connector remove {PREFIX}<number>_<topic>",
                file=sys.stderr,
            )
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
