"""Outputs of tables as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(
    words={
        "to_postgres": "twofold.tables.declare.outputs.postgres_output:to_postgres",
        "to_topic": "twofold.tables.declare.outputs.topic_output:to_topic",
        "to_webhook": "twofold.tables.declare.outputs.webhook_output:to_webhook",
    },
    commands={"Run the platform": ["twofold.cli.commands.outputs_commands:app"]},
    services=["twofold.outputs.database_service:SERVICE", "twofold.outputs.follow.outputs_service:SERVICE"],
    ledgers={
        "ledger.refused": "twofold.outputs.refused_rows:SCHEMA",
        "ledger.revealed": "twofold.outputs.revealed_places:SCHEMA",
    },
    parts={"outputs": "twofold.status.parts.outputs:output_reports"},
    symptoms=["twofold.features.outputs.output_symptoms:output_failed"],
)
