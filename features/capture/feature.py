"""Captured databases as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(
    words={
        "changes_of": "twofold.tables.declare.sources.captured_topic:changes_of",
        "outbox_of": "twofold.tables.declare.sources.captured_topic:outbox_of",
        "history": "twofold.tables.declare.functions.captured_rows:history",
        "latest_rows": "twofold.tables.declare.functions.captured_rows:latest_rows",
        "latest_values": "twofold.tables.declare.functions.captured_rows:latest_values",
    },
    commands={"Run one step by hand": ["twofold.cli.commands.recapture_command:recapture"]},
    services=["twofold.batch.capture.connect_service:SERVICE"],
    checks={"slots": "twofold.status.parts.captures:require_topics_of_slots"},
    audits=["twofold.batch.audit.database_audit:audit_captured"],
    parts={"captures": "twofold.status.parts.captures:running_captures"},
    symptoms=["twofold.features.capture.capture_symptoms:capture_faulty"],
)
