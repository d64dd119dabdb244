"""Work queues as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(commands={"Run the platform": ["twofold.features.work_queue.work_command:work"]})
