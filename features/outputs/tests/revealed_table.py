"""A table with values of persons, encrypted, and what its outputs reveal of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pyarrow as pa

from tests.tables.declared import a_table
from twofold import to_postgres
from twofold.features.outputs.tests.followed_table import Follows, MemoryCopy, hour
from twofold.features.persons.keys.ciphertext import seal
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.output import Output
from twofold.tables.declare.table import Table

SCHEMA = pa.schema(
    [("k", pa.string()), ("mail", pa.string()), ("note", pa.string()), ("closes_at", pa.timestamp("us", "UTC"))]
)


def mail_of(name: str) -> str:
    """A word that is found nowhere by chance, and that compression leaves in one piece."""
    return sha256(name.encode()).hexdigest()[:40]


@dataclass
class RevealedTable(Follows):
    """The table `plant.hours`; a row is of the persons that its key names, such as `ann` or `ann to bob`.

    Attributes:
        rows: key -> the mail that it has.
    """

    lake: Lake
    output: Output = field(default_factory=lambda: to_postgres(reveal=["mail"]))
    rows: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make_keys(self.lake.settings)
        self.lake.ensure(self.name, SCHEMA, statistics=["k"])
        self.writer = Writer(self.lake, self.name)

    @property
    def table(self) -> Table:
        return a_table(primary_key=["k"], recompute_by=["k"], event_time="closes_at", outputs=[self.output])

    @property
    def name(self) -> str:
        return "plant.hours"

    def with_keys(self, do: Callable[[KeyStore], Any]) -> Any:
        with closing(KeyStore(self.lake.settings)) as store:
            return do(store)

    def forget(self, *names: str) -> None:
        for name in names:
            self.with_keys(lambda store, name=name: store.forget(Person("customer", name), 0))

    def next_tag(self) -> CommitTag:
        return CommitTag(app="test", version=self.writer.next_number("test"))

    def put(self, *keys: str, mail: str = "", sealed: str = "") -> None:
        """Insert or replace rows, by default with the mails of their persons; `sealed` is one that is encrypted."""

        def encrypted(store: KeyStore) -> list[str | None]:
            found: list[str | None] = []
            for key in keys:
                persons = [Person("customer", name) for name in key.split(" to ")]
                known = store.keys_of(persons)
                owners = [owner for person in persons if (owner := known[person]) is not None]
                text = json.dumps(mail or mail_of(key)).encode()
                found.append(seal(text, owners) if len(owners) == len(persons) else None)
            return found

        columns = {
            "k": list(keys),
            "mail": [sealed] * len(keys) if sealed else self.with_keys(encrypted),
            "note": [f"a note on {k}" for k in keys],
        }
        rows = pa.table({**columns, "closes_at": pa.array([hour(1)] * len(keys), SCHEMA.field(3).type)}, schema=SCHEMA)
        self.writer.upsert(rows, ["k"], self.next_tag())
        self.rows |= dict.fromkeys(keys, mail) if mail else {key: mail_of(key) for key in keys}

    def without(self, *names: str) -> dict[str, str | None]:
        """The mails that a copy shows once these persons are forgotten."""
        return {k: None if set(k.split(" to ")) & set(names) else mail for k, mail in self.rows.items()}


def shown(copy: MemoryCopy) -> dict[str, str | None]:
    """Key -> mail, of a copy."""
    return {row["k"]: row["mail"] for row in copy.kept.values()}
