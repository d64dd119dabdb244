"""The process of outputs for `plant.hours`, which has a webhook, as a program of the supervisor."""

from __future__ import annotations

from tests.tables.declared import a_table
from twofold import to_webhook
from twofold.features.outputs.follow import runner
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry

if __name__ == "__main__":
    table = a_table(primary_key=["k"], recompute_by=["k"], event_time="closes_at", outputs=[to_webhook("hook")])
    runner.run(Settings.from_environment(), Registry({}, {table.full_name: table}))
