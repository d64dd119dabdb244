"""Persons as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(
    words={
        "domain_of": "twofold.features.persons.records.personal:domain_of",
        "person": "twofold.features.persons.records.personal:person",
        "personal": "twofold.features.persons.records.personal:personal",
        "start_of": "twofold.features.persons.records.personal:start_of",
        "token_of": "twofold.features.persons.records.personal:token_of",
        "year_group": "twofold.features.persons.records.personal:year_group",
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
    ledgers={"ledger.forgotten": "twofold.features.persons.keys.ended_keys:SCHEMA"},
    cover="twofold.features.persons.person_cover:PersonCover",
    parts={"plain_text": "twofold.features.persons.records.plain_text:plain_text_records"},
    symptoms=["twofold.features.persons.person_symptoms:plain_text"],
)
