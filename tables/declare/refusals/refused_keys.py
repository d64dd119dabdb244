"""Refusals of keys and scopes: missing ones, and those that contradict the function or each other."""

from __future__ import annotations

from twofold.tables.declare.refusals.declaration_refusal import DeclarationRefusal
from twofold_algebra.refusal import Subject

KEY_OF_ONE_ROW = (
    "primary_key=[...], the columns that identify a row. A table of one row has a constant one: "
    '.withColumn("id", F.lit(1)), primary_key=["id"], recompute_by=[]'
)

MISSING = DeclarationRefusal(
    name="needs-a-key-or-a-scope",
    subject=Subject.KEYS,
    shape="@table needs {names}, which cannot be inferred",
    why="{reason}",
    instead="Write {parameters}.",
)
EMPTY_KEY = DeclarationRefusal(
    name="empty-key",
    subject=Subject.KEYS,
    shape="primary_key is empty",
    why="rows that no column identifies cannot be corrected one by one",
    instead=f"Write {KEY_OF_ONE_ROW}.",
)
OPEN_KEY = DeclarationRefusal(
    name="key-that-does-not-identify-a-row",
    subject=Subject.KEYS,
    shape="primary_key={key} does not identify a row",
    why="of several with one key the stream would keep the first, the batch any",
    instead="Write sequence_by=[...], which says what row stays; or group by the key, or add {columns} to it.",
    runs=True,
)
OTHER_GROUPS = DeclarationRefusal(
    name="key-of-other-groups",
    subject=Subject.KEYS,
    shape="primary_key={key} contradicts {function}",
    why="it groups by {groups}",
    instead="Leave primary_key out.",
)
OTHER_SCOPE = DeclarationRefusal(
    name="scope-that-is-too-narrow",
    subject=Subject.KEYS,
    shape="recompute_by={given} contradicts {function}",
    why="a row depends on rows with another {columns}",
    instead="Write recompute_by={choice}.",
)
OTHER_COLUMN = DeclarationRefusal(
    name="scope-column-that-is-another",
    subject=Subject.KEYS,
    shape="scope_columns has {column}={written!r} of {input}, which contradicts {function}",
    why="by the function it is {expression}",
    instead="Leave scope_columns out: it follows from the function.",
)
NO_SCOPE = DeclarationRefusal(
    name="scope-column-of-no-input",
    subject=Subject.KEYS,
    shape="scope_columns={given}",
    why="expected inputs, and columns of recompute_by",
    instead="The inputs are {inputs}; recompute_by is {by}.",
)
NO_VALUE = DeclarationRefusal(
    name="scope-column-that-is-no-value",
    subject=Subject.KEYS,
    shape="scope_columns of {input}: {text!r} {fault}",
    why="expected a column, a field of one, or an expression over columns of one row",
    instead="Write a column of the input, in backticks if its name is no word.",
)
NO_COLUMN = DeclarationRefusal(
    name="scope-column-that-the-topic-lacks",
    subject=Subject.KEYS,
    shape="scope_columns names {columns}",
    why="{topic} has no such column",
    instead="It has {known}.",
)
TOLERANCE = DeclarationRefusal(
    name="tolerance-of-a-key",
    subject=Subject.KEYS,
    shape="tolerances or lineage_columns name {columns}",
    why="expected columns outside of primary_key and relative errors of at least 0",
    instead='Name other columns, like tolerances={{"planes": 0.02}}.',
)
TAKEN = DeclarationRefusal(
    name="topic-with-a-column-record",
    subject=Subject.KEYS,
    shape="lineage_columns={columns}",
    why="{topic} has a column {record!r} of its own",
    instead="Rename the column of the topic.",
)
