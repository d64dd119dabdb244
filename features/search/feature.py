"""Searches as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(
    words={
        "search_matches": "twofold.features.search.stored_searches:search_matches",
        "search_terms": "twofold.features.search.stored_searches:search_terms",
        "to_search": "twofold.features.search.search_output:to_search",
    },
    chores=["twofold.features.search.search_chores:undeclared_indexes"],
    commands={"Look at the data": ["twofold.features.search.search_command:search"]},
)
