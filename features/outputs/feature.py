"""Outputs of tables as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(
    words={
        "to_postgres": "twofold.features.outputs.targets.postgres_output:to_postgres",
        "to_topic": "twofold.features.outputs.targets.topic_output:to_topic",
        "to_webhook": "twofold.features.outputs.targets.webhook_output:to_webhook",
    },
    commands={"Run the platform": ["twofold.features.outputs.commands.outputs_commands:app"]},
    services=[
        "twofold.features.outputs.targets.database_service:SERVICE",
        "twofold.features.outputs.follow.outputs_service:SERVICE",
    ],
    ledgers={
        "ledger.refused": "twofold.features.outputs.refused_rows:SCHEMA",
        "ledger.revealed": "twofold.features.outputs.revealed_places:SCHEMA",
    },
    audits=["twofold.features.outputs.copy_audit:audit_copies"],
    parts={"outputs": "twofold.features.outputs.follow.output_reports:output_reports"},
    chores=[
        "twofold.features.outputs.output_chores:undeclared",
        "twofold.features.outputs.targets.webhook_chores:refused_bodies",
        "twofold.features.outputs.output_chores:refused_rows",
    ],
    symptoms=["twofold.features.outputs.output_symptoms:output_failed"],
)
