"""Views for people who query as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(
    commands={
        "show": [
            "twofold.features.analysts.sql_command:sql",
            "twofold.features.analysts.session_commands:spark",
            "twofold.features.analysts.session_commands:notebook",
            "twofold.features.analysts.session_commands:mcp",
        ]
    },
    derived={"Views for analysts": "twofold.features.analysts.analytics_file:write_analytics"},
)
