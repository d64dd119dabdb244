"""The demo as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(
    commands={"Run the platform": ["twofold.demo.run.demo_command:demo", "twofold.demo.run.traffic_command:traffic"]}
)
