"""The page as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(
    commands={"Run the platform": ["twofold.features.page.server.page_command:page"]},
    checks={"page": "twofold.features.page.framed_page:require_frame"},
)
