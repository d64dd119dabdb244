"""Persons as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(
    words={
        "domain_of": "twofold.tables.declare.personal:domain_of",
        "person": "twofold.tables.declare.personal:person",
        "personal": "twofold.tables.declare.personal:personal",
        "start_of": "twofold.tables.declare.personal:start_of",
        "token_of": "twofold.tables.declare.personal:token_of",
        "year_group": "twofold.tables.declare.personal:year_group",
    },
    commands={
        "Persons": [
            "twofold.features.persons.people_commands:forget",
            "twofold.features.persons.people_commands:remember",
            "twofold.features.persons.people_commands:export",
            "twofold.features.persons.keys_commands:app",
        ]
    },
    services=["twofold.features.persons.relay:SERVICE"],
    ledgers={"ledger.forgotten": "twofold.infra.keys.ended_keys:SCHEMA"},
    parts={"plain_text": "twofold.status.parts.plain_text:plain_text_records"},
    symptoms=["twofold.features.persons.person_symptoms:plain_text"],
)
