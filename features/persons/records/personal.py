"""Columns of persons, encrypted before the log and null once the person is forgotten, and what is computed of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import pairwise
from typing import Any

from twofold.features.persons.keys.ciphertext import PATTERN
from twofold.infra.errors import BadDeclaration
from twofold.infra.extras import require_extra
from twofold.quality.rules import Rule, matches
from twofold.tables.declare.encodings import find_encoding
from twofold.tables.declare.parameter_checks import NAME, require_columns
from twofold.tables.declare.record_fields import Field
from twofold.tables.declare.records.cover import CoveredType
from twofold.tables.declare.refusals.mistake_list import require_none
from twofold.tables.declare.topic import Topic

_OF_JSON = (
    "twofold.infra.encodings.json.json_decoder:JsonParser",
    "twofold.infra.webhooks.delivery_parser:DeliveryParser",
    "twofold.features.capture.debezium_decoder:DebeziumParser",
)
"""The parsers of records that are JSON."""


@dataclass(frozen=True)
class Owner:
    """Whose a value is.

    Attributes:
        kind: of the person, as in `twofold forget KIND ID`.
        column: of the record, which holds the person's id.
    """

    kind: str
    column: str

    def __str__(self) -> str:
        return repr(self.column) if self.kind == self.column else f"person({self.kind!r}, of={self.column!r})"


class Personal(CoveredType):
    """The type of a column whose values are encrypted: `string?`.

    Attributes:
        owners: whose the value is; it can be read as long as none of them is forgotten.
        path: the names that lead to the field; none: the column's.
    """

    completed = f"{__name__}:with_sealed_columns"
    owners: tuple[Owner, ...]
    path: tuple[str, ...]

    def __new__(cls, owners: tuple[Owner, ...], path: tuple[str, ...] = ()) -> Personal:
        kind = str.__new__(cls, "string?")
        kind.owners, kind.path = owners, path
        return kind

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.owners, self.path

    def __repr__(self) -> str:
        path = [f"path={'.'.join(self.path)!r}"] if self.path else []
        return f"personal({', '.join([*map(str, self.owners), *path])})"


class PersonalField(Personal, Field):
    """Such a column whose field has another name, or is within another one."""

    source = "value"
    default = None


class Computed(CoveredType):
    """The type of a column in the clear that is computed from one of persons before that is encrypted: `string?`.

    Attributes:
        column: of the schema, the one of persons.
        compute: JSON value -> text, or None.
    """

    completed = Personal.completed
    is_computed = True
    column: str
    compute: Callable[[Any], str | None]
    _text: str

    def __new__(cls, column: str, compute: Callable[[Any], str | None], text: str) -> Computed:
        kind = str.__new__(cls, "string?")
        kind.column, kind.compute, kind._text = column, compute, text
        return kind

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.column, self.compute, self._text

    def __repr__(self) -> str:
        return self._text


class Token(Computed):
    """Such a column with a keyed hash of the personal value: `compute` gives what is hashed."""


def person(kind: str, *, of: str) -> Owner:
    """Names a person whose kind is not the name of the column that holds the id.

    Args:
        kind: of the person, as in `twofold forget KIND ID`.
        of: the column with the person's id.
    """
    return Owner(kind, of)


def personal(*owners: str | Owner, path: str = "") -> Personal:
    """Declares a column of one person, or of several: any JSON value, encrypted before the log, null once forgotten.

    Its type is `string?`: functions see ciphertext, equal for equal values of one person; `reveal(column)` in
    `twofold sql` decrypts it. Keys, times and rules cannot use it. Fields of the record that the schema does not name
    are encrypted, too, or, with `unknown_fields="ignore"`, dropped.

    Args:
        owners: the column with the person's id, whose name is the kind of person, or `person(kind, of=column)`.
        path: the names that lead to the field, if that is not the column's, with dots between.
    """
    require_extra("persons")
    named = tuple(owner if isinstance(owner, Owner) else Owner(owner, owner) for owner in owners)
    return PersonalField(named, tuple(path.split("."))) if path else Personal(named)


def domain_of(column: str) -> Computed:
    """Declares a column with the domain of a mail address: what follows its last `@`, in lower case; else null.

    It is in the clear, as all that is computed from a personal column, and stays when the person is forgotten.

    Args:
        column: the personal column with the address.
    """
    return Computed(column, _domain, f"domain_of({column!r})")


def start_of(column: str, length: int) -> Computed:
    """Declares a column with the first letters of a personal column, such as the area of a postal code; else null.

    Args:
        column: the personal column, a string.
        length: how many letters at most.
    """
    if length < 1:
        raise BadDeclaration(f"start_of({column!r}, {length}): expected one letter at least.")
    return Computed(column, partial(_start, length), f"start_of({column!r}, {length})")


def year_group(column: str, bounds: Sequence[int]) -> Computed:
    """Declares a column with the span of years that a date is in: `-1949`, `1950-1969`, `1970-`, for 1950 and 1970.

    Args:
        column: the personal column: a year, or a text that begins with a date as `1984-05-01`; of others it is null.
        bounds: the first years of all spans but the first, in order.
    """
    if not bounds or any(first >= second for first, second in pairwise(bounds)):
        raise BadDeclaration(f"year_group({column!r}, {list(bounds)}): expected years in order.")
    return Computed(column, partial(_years, tuple(bounds)), f"year_group({column!r}, {list(bounds)})")


def token_of(column: str) -> Computed:
    """Declares a column with a token of a personal column, by which tables join and count over persons; else null.

    Equal values have equal tokens in all topics of a domain, also those of several persons. It is a keyed hash: 22
    characters, made by a key of the domain, in the store of persons' keys, that does not end. It stays when the person
    is forgotten, and who can read that key can test a guess of the value against it.

    Args:
        column: the personal column, of any JSON value.
    """
    return Token(column, _as_json, f"token_of({column!r})")


def personal_columns(topic: Topic) -> Mapping[str, Personal]:
    """Returns the encrypted columns of a topic."""
    return {column: given for column, given in topic.schema.items() if isinstance(given, Personal)}


def computed_columns(topic: Topic) -> Mapping[str, Computed]:
    """Returns the columns of a topic that are computed before others are encrypted."""
    return {column: given for column, given in topic.schema.items() if isinstance(given, Computed)}


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
    mistakes = [
        f"{name}={given!r}: expected a personal column of the schema, for example {given.column}=personal(...)."
        for name, given in computed_columns(topic).items()
        if given.column not in columns
    ]
    if not columns and not mistakes:
        return topic
    mistakes += _mistakes_of_topic(topic)
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
    if find_encoding(topic.encoding).parser not in _OF_JSON:
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
    if topic.has_marks and path_of(topic, column) != (column,):
        found.append(f"{column}={topic.schema[column]!r}: expected no path, since a row of a table has columns alone.")
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


def _as_json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, sort_keys=True)


def _domain(value: Any) -> str | None:
    found = value.rpartition("@") if isinstance(value, str) else ("", "", "")
    return found[2].strip().lower() or None if found[1] else None


def _start(length: int, value: Any) -> str | None:
    return value[:length] if isinstance(value, str) else None


def _years(bounds: tuple[int, ...], value: Any) -> str | None:
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value[:10]).year
        except ValueError:
            return None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    first = max((bound for bound in bounds if bound <= value), default=None)
    after = min((bound for bound in bounds if bound > value), default=None)
    return f"{'' if first is None else first}-{'' if after is None else after - 1}"
