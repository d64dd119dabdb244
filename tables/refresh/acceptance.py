"""Reads and changes the accepted code of a Delta table's rows, a property of the table."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import EllipsisType
from typing import TYPE_CHECKING

from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadDeclaration, DefinitionChanged, WriteConflict
from twofold.tables.declare.code_fingerprint import digest, fingerprint
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.refresh.events.ingested_offsets import INGEST

if TYPE_CHECKING:
    from deltalake import DeltaTable

FINGERPRINT = "fingerprint"
"""The key under which a commit names the definition that its rows were computed by."""
RULES = "rules"
"""The key under which a commit names the rules that its table declared."""
CODE = "twofold.code"
"""The property that holds the fact, as JSON."""
STREAM, REFRESH = "stream", "refresh"
FENCES = (INGEST, STREAM, REFRESH)
"""The transaction ids under which rows are written: by ingest, by a table's stream, and by all that compares first.

Each commit takes the next number of its own; a change of the fact takes that of all. So who has read the table before
cannot commit behind it, and looks again.
"""
_ATTEMPTS, _WAIT_S = 20, 0.05
_log = logging.getLogger("twofold.accept")


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The code that the rows of a table are of: a definition; of a topic, how its records are decoded.

    Attributes:
        rules: digest of the rules that they were held against.
        since: of a topic, partition -> events before it are of older code: their records are gone.
        through: records from these offsets on, by partition, or rows, are not known to be of the code; None: all are;
            nothing: none is known to be.
    """

    code: str
    rules: str = ""
    since: Mapping[str, int] = field(default_factory=dict)
    through: Mapping[str, int] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all rows are known to be of the code."""
        return self.through is None

    def is_of(self, code: str, *, whole: bool = False) -> bool:
        """Whether the accepted code is this one, and with `whole` all rows are known to be of it."""
        return is_same(self.code, code) and (self.is_whole or not whole)


def accepted_code(lake: Lake, name: str, table: DeltaTable | None = None) -> Accepted | None:
    """Reads the accepted code of a table; if it was never changed, that of the newest commit with a fingerprint.

    Args:
        table: at a version of it; None: as it is now.

    Returns:
        None if none is recorded: rows of any code are accepted.
    """
    table = table or lake.open(name)
    if text := table.metadata().configuration.get(CODE):
        return Accepted(**json.loads(text))
    info = lake.newest_info(name, FINGERPRINT, at=table.version()) or {}
    rules = info if RULES in info else lake.newest_info(name, RULES, at=table.version()) or {}
    return Accepted(code=str(info[FINGERPRINT]), rules=str(rules.get(RULES, ""))) if info else None


def accept(
    lake: Lake,
    name: str,
    fact: Accepted,
    *,
    instead_of: Accepted | EllipsisType | None = ...,
    info: Mapping[str, object] | None = None,
    while_: Callable[[DeltaTable], bool] = lambda table: True,
) -> bool:
    """Changes the accepted code of a table, unless another process has changed it meanwhile.

    Args:
        instead_of: the fact that it has to be, as `accepted_code` said; without it: any.
        info: what the commit says of itself.
        while_: what must hold of the table at the version before the commit, too.

    Raises:
        WriteConflict: others write the table all the time. Retryable.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError

    text, said = json.dumps(asdict(fact)), {"cause": "definition", **(info or {}), FINGERPRINT: fact.code}
    for attempt in range(_ATTEMPTS):
        table = lake.open(name)
        if (instead_of is not ... and accepted_code(lake, name, table) != instead_of) or not while_(table):
            return False
        if table.metadata().configuration.get(CODE) == text:
            return True
        properties = CommitProperties(
            custom_metadata={"userMetadata": json.dumps(said, default=str)},
            app_transactions=[Transaction(app, (table.transaction_version(app) or 0) + 1) for app in FENCES],
        )
        try:
            table.alter.set_table_properties({CODE: text}, raise_if_not_exists=False, commit_properties=properties)
        except CommitFailedError:
            time.sleep(_WAIT_S * attempt)
            continue
        lake.write_checksum(name, table.version())
        _log.info("accepted table=%s code=%s through=%s", name, fact.code, fact.through)
        return True
    raise WriteConflict(
        f"{name}: {_ATTEMPTS} attempts to accept the code {fact.code} lost against other writers.",
        hint="Run the command again when the table is quieter.",
    )


def definition(table: Table, registry: Registry) -> str:
    """Computes the fingerprint; if repeated records count once, followed by a digest of the identity of records.

    The identity of records is declared by the topics that the table reads: `dedup_keys` and `clock`. How they decode
    records is no part of it: events stay what they are until a replay, which reconcile carries through every table.
    """
    topics = registry.topics_of(table)
    if not topics or not registry.strategy(table).removes_repeats:
        return fingerprint(table)
    # Where a scope is of a person's values, copies of a record counted once for each value before.
    alone = {topic.full_name: " alone" if table.ending_reads(topic) else "" for topic in topics}
    identities = [f"{list(topic.dedup_keys)} {topic.clock}{alone[topic.full_name]}" for topic in topics]
    return f"{fingerprint(table)}-{digest(identities)}"


def is_same(one: str, other: str) -> bool:
    """Whether both denote one definition; older versions stored nothing after the fingerprint."""
    if "-" in one and "-" in other:
        return one == other
    return one.partition("-")[0] == other.partition("-")[0]


def code_facts(table: Table, registry: Registry) -> dict[str, str]:
    """Returns the facts about the code in a commit: the definition, and a digest of the rules."""
    return {FINGERPRINT: definition(table, registry), RULES: digest([str(rule) for rule in table.checks])}


def code_today(table: Table, registry: Registry) -> Accepted:
    """Returns the accepted code of a table whose rows are of its current declaration."""
    facts = code_facts(table, registry)
    return Accepted(code=facts[FINGERPRINT], rules=facts[RULES])


def is_accepted(lake: Lake, table: Table, registry: Registry) -> bool:
    """Whether the table's rows, if there are some, are of the current definition, or are being converted to it."""
    fact = accepted_code(lake, table.full_name)
    return fact is None or fact.is_of(definition(table, registry))


def live_unproved(lake: Lake, registry: Registry) -> dict[str, str]:
    """Finds the tables that go on with their code, though a new one like it is refused, and says what each lacks."""
    return {
        name: f"{name} goes on, but a new table like it is refused: {what.rstrip('.')}; {hint[:1].lower()}{hint[1:]}"
        for name, fault in registry.unproved.items()
        if _goes_on(lake, registry.tables[name], registry)
        for what, hint in [(fault.message.partition(": ")[2], fault.hint or "correct it.")]
    }


def refused(lake: Lake, registry: Registry) -> dict[str, BadDeclaration]:
    """Finds what is left out, and why: what cannot be loaded, and new code that is not known to give one result."""
    new = {n: fault for n, fault in registry.unproved.items() if not _goes_on(lake, registry.tables[n], registry)}
    return {**registry.faults, **new}


def require_proved(lake: Lake, table: Table, registry: Registry) -> None:
    """Refuses code that is not known to give one result, unless the table's rows are already of it.

    Raises:
        Unproved: names what to declare.
    """
    fault = registry.unproved.get(table.full_name)
    if fault and not _goes_on(lake, table, registry):
        raise fault


def _goes_on(lake: Lake, table: Table, registry: Registry) -> bool:
    """Whether the lake has rows of the table that are of its code."""
    return lake.exists(table.full_name) and is_accepted(lake, table, registry)


def require_one_definition(lake: Lake, table: Table, registry: Registry, at: DeltaTable | None = None) -> None:
    """Refuses to add rows of this definition to rows of another one.

    Args:
        at: the table at a version; None: as it is now.

    Raises:
        DefinitionChanged: names both fingerprints, and what accepts the new definition.
    """
    fact, now = accepted_code(lake, table.full_name, at), definition(table, registry)
    if fact is None or fact.is_of(now):
        return
    before = fact.code
    by_topics = before.partition("-")[0] == now.partition("-")[0]
    says = "its topics' dedup_keys or clock say" if by_topics else f"tables/{table.domain}/{table.name}.py now says"
    raise DefinitionChanged(
        f"{table.full_name}: its rows were computed by the definition {before}; {says} {now}.",
        hint=f"`{COMMAND} backfill {table.full_name}` computes every row by the new definition and accepts it; to "
        "keep the old one, take the change back. A stream that runs the older code is to be started again: "
        f"`{COMMAND} down`, `{COMMAND} up`.",
        table=table.full_name,
        before=before,
        now=now,
    )
