"""Captured databases as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(
    words={
        "changes_of": "twofold.features.capture.captured_topic:changes_of",
        "outbox_of": "twofold.features.capture.captured_topic:outbox_of",
        "history": "twofold.features.capture.captured_rows:history",
        "latest_rows": "twofold.features.capture.captured_rows:latest_rows",
        "latest_values": "twofold.features.capture.captured_rows:latest_values",
    },
    commands={
        "Run one step by hand": ["twofold.features.capture.operate.recapture_command:recapture"],
        "new": ["twofold.features.capture.operate.capture_scaffold:capture"],
    },
    services=["twofold.features.capture.operate.connect_service:SERVICE"],
    checks={"slots": "twofold.features.capture.operate.capture_states:require_topics_of_slots"},
    audits=["twofold.features.capture.operate.database_audit:audit_captured"],
    parts={"captures": "twofold.features.capture.operate.capture_states:running_captures"},
    symptoms=["twofold.features.capture.capture_symptoms:capture_faulty"],
)
