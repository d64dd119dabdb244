"""A lake with letters of persons, a table of them that names no receiver, and an index that reveals their mails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from tests.tables.declared import written
from twofold.features.outputs.next_step import next_step
from twofold.features.outputs.open_target import open_target
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.records.record_sealer import sealing
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry, load

TOPIC = '''
    """Letters of customers."""
    from twofold import Topic, person, personal
    TOPIC = Topic(
        schema={
            "id": "int", "sender": "string", "receiver": "int", "at": "timestamp", "mail": personal("sender"),
            "text": personal(person("client", of="receiver"), "sender"),
        },
        event_time="at", message_key="sender", dedup_keys=["id"], unknown_fields="ignore",
    )
    '''
TABLE = '''
    """The letters."""
    from twofold import table, to_search
    @table(
        primary_key=["id"], sequence_by=["at"], recompute_by=["id"],
        outputs=[to_search(text=["mail"], reveal=["mail"])],
    )
    def kept_letters(letters):
        return letters
    '''
SCHEMA = pa.schema(
    [("id", pa.int32()), ("receiver", pa.int32()), *((name, pa.string()) for name in ("sender", "mail", "text"))]
)
LETTERS = [
    {"id": 1, "sender": "ann", "receiver": 7, "mail": "ann@b.c", "text": "to seven"},
    {"id": 2, "sender": "bob", "receiver": 7, "mail": "bob@b.c", "text": "to seven, too"},
    {"id": 3, "sender": "ann", "receiver": 8, "mail": "ann@b.c", "text": "to eight"},
    {"id": 4, "sender": "cat", "receiver": 9, "mail": "cat@b.c", "text": None},
]
"""Both texts to the receiver 7 are encrypted by the receiver's key, and then by that of the sender."""


class Letters:
    """The platform, without streams; its index follows when it is told to."""

    def __init__(self, home: Path, declared: Path) -> None:
        files = {"post/letters.py": TOPIC, "post/kept_letters.py": TABLE}
        self.registry: Registry = load(written(declared, files)).require_sound()
        self.settings = Settings(home=home)
        self.lake = Lake(self.settings)
        make_keys(self.settings)
        with sealing(self.settings, self.registry.topics.values()) as seal:
            values = [seal("post.letters", json.dumps(letter).encode()) for letter in LETTERS]
        rows = pa.Table.from_pylist([json.loads(value or b"") for value in values], SCHEMA)
        write_deltalake(self.lake.uri("post.letters"), rows)
        write_deltalake(self.lake.uri("post.kept_letters"), rows.drop_columns(["receiver"]))
        refused: dict[str, Any] = {"value": [values[0], b"\xff{"], "reasons": [["no reason"], ["no JSON"]]}
        write_deltalake(self.lake.uri("post.letters_quarantine"), pa.table(refused))

    def follow(self) -> None:
        [(table, output)] = self.registry.outputs()
        target = open_target(self.lake, table, output)
        while step := next_step(self.lake, table, output, target.position(), target):
            target.send(step.changes, step.before, step.after)
