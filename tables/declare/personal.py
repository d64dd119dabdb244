"""Columns of persons: their values are encrypted before the log, and are null once the person is forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infra.errors import BadDeclaration
from infra.keys.ciphertext import PATTERN
from quality.rules import Rule, matches
from tables.algebra.mistake_list import require_none
from tables.declare.encodings import find_encoding
from tables.declare.parameter_checks import NAME, require_columns
from tables.declare.record_fields import Field
from tables.declare.topic import Topic


@dataclass(frozen=True)
class Owner:
    """Whose a value is.

    Attributes:
        kind: of the person, as in `./twofold forget KIND ID`.
        column: of the record, which holds the person's id.
    """

    kind: str
    column: str

    def __str__(self) -> str:
        return repr(self.column) if self.kind == self.column else f"person({self.kind!r}, of={self.column!r})"


class Personal(str):
    """The type of a column whose values are encrypted: `string?`.

    Attributes:
        owners: whose the value is; it can be read as long as none of them is forgotten.
        path: the names that lead to the field; none: the column's.
    """

    owners: tuple[Owner, ...]
    path: tuple[str, ...]

    def __new__(cls, owners: tuple[Owner, ...], path: tuple[str, ...] = ()) -> Personal:
        kind = str.__new__(cls, "string?")
        kind.owners, kind.path = owners, path
        return kind

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.owners, self.path

    def __str__(self) -> str:
        return self[:]

    def __repr__(self) -> str:
        path = [f"path={'.'.join(self.path)!r}"] if self.path else []
        return f"personal({', '.join([*map(str, self.owners), *path])})"


class PersonalField(Personal, Field):
    """Such a column whose field has another name, or is within another one."""

    source = "value"
    default = None


def person(kind: str, *, of: str) -> Owner:
    """Names a person whose kind is not the name of the column that holds the id.

    Args:
        kind: of the person, as in `./twofold forget KIND ID`.
        of: the column with the person's id.
    """
    return Owner(kind, of)


def personal(*owners: str | Owner, path: str = "") -> Personal:
    """Declares a column of one person, or of several: any JSON value, encrypted before the log, null once forgotten.

    Its type is `string?`: functions see ciphertext, equal for equal values of one person; `reveal(column)` in
    `./twofold sql` decrypts it. Keys, times and rules cannot use it. Fields of the record that the schema does not name
    are encrypted, too, or, with `unknown_fields="ignore"`, dropped.

    Args:
        owners: the column with the person's id, whose name is the kind of person, or `person(kind, of=column)`.
        path: the names that lead to the field, if that is not the column's, with dots between.
    """
    named = tuple(owner if isinstance(owner, Owner) else Owner(owner, owner) for owner in owners)
    return PersonalField(named, tuple(path.split("."))) if path else Personal(named)


def personal_columns(topic: Topic) -> Mapping[str, Personal]:
    """Returns the encrypted columns of a topic."""
    return {column: given for column, given in topic.schema.items() if isinstance(given, Personal)}


def compared_bytes(topic: Topic) -> Sequence[str]:
    """Returns the columns of quarantine with bytes of records that two decodings of them agree in.

    None, if some are encrypted: by a key that is destroyed before the log is.
    """
    return () if personal_columns(topic) else ("value",)


def path_of(topic: Topic, column: str) -> tuple[str, ...]:
    """Returns the names that lead to the field of a column in a record's value."""
    return getattr(topic.schema[column], "path", ()) or (column,)


def owners_of(topic: Topic) -> tuple[Owner, ...]:
    """Returns all owners of columns of a topic, each once."""
    return tuple(dict.fromkeys(owner for given in personal_columns(topic).values() for owner in given.owners))


def with_sealed_columns(topic: Topic) -> Topic:
    """Adds the rules that keep plain text out of columns of persons; a topic without such columns stays as it is.

    Raises:
        BadDeclaration: lists what cannot be personal, and why.
    """
    columns = personal_columns(topic)
    if not columns:
        return topic
    mistakes = _mistakes_of_topic(topic)
    for column, given in columns.items():
        mistakes += _mistakes_of_column(topic, column)
        mistakes += [text for owner in given.owners for text in _mistakes_of_owner(topic, column, owner)]
        if not given.owners:
            mistakes.append(f"{column}={given!r}: expected whose it is, the column with the person's id.")
    require_none([BadDeclaration(message) for message in dict.fromkeys(mistakes)])
    return replace(topic, checks=(*topic.checks, *map(sealed_rule, columns)))


def sealed_rule(column: str) -> Rule:
    """Returns the rule that refuses plain text in a column of persons."""
    return matches(column, PATTERN)


def _mistakes_of_topic(topic: Topic) -> list[str]:
    from infra.encodings.json.json_decoder import JsonParser
    from infra.webhooks.delivery_parser import DeliveryParser

    if topic.captures:
        why = "Debezium writes plain text to the topic itself"
        return [f"captures={topic.captures!r}: columns of a captured table or an outbox cannot be personal yet: {why}."]
    if find_encoding(topic.encoding).parser_class not in (JsonParser, DeliveryParser):
        return [f"encoding={topic.encoding!r}: only columns of JSON records can be personal."]
    return []


def _mistakes_of_column(topic: Topic, column: str) -> list[str]:
    # Times cannot be personal either: they are no texts.
    uses: dict[str, Sequence[str]] = {"message_key": [topic.message_key], "dedup_keys": topic.dedup_keys}
    found = [
        f"{what} names {column}, which is personal; expected a column in plain text, that stays when the person is "
        "forgotten."
        for what, names in uses.items()
        if column in names
    ]
    return found + [
        f"The rule {rule} reads {column}, which is personal: rules see ciphertext; leave the rule out."
        for rule in topic.checks
        if column in rule.columns
    ]


def _mistakes_of_owner(topic: Topic, column: str, owner: Owner) -> list[str]:
    what = f"{column}={topic.schema[column]!r}"
    if not NAME.match(owner.kind):
        return [f"{what}: {owner.kind!r} cannot name a kind of person; expected lower-case letters, digits and _."]
    try:
        require_columns(what, [owner.column], topic.schema)
    except BadDeclaration as mistake:
        return [str(mistake)]
    given = topic.schema[owner.column]
    if isinstance(given, Personal):
        return [f"{what}: {owner.column} is personal itself; expected a column with the person's id in plain text."]
    if isinstance(given, Field) and given.source != "value":
        return [f"{what}: {owner.column} is the record's {given.source}; expected a field of its value."]
    if topic.types[owner.column].name not in ("string", "int", "long"):
        return [f"{what}: {owner.column} is declared {given!r}; expected an id, a string or a whole number."]
    return []
