"""Tables as they are declared; each parameter is checked when the file is loaded."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from infra.duration import parse_duration
from infra.errors import BadDeclaration
from quality.rules import Rule
from tables.algebra.expression_sql import require_value
from tables.algebra.mistake_list import found_by, require_none
from tables.declare.parameter_checks import duration_checks, require_known, require_list, require_rules, set_fields
from tables.declare.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Derive = Callable[..., DataFrame]

NAMING = (
    "primary_key",
    "recompute_by",
    "sequence_by",
    "event_time",
    "ends_at",
    "closes_at",
    "tolerances",
    "lineage_columns",
)
"""The parameters of a table that name columns of its result."""
KEY_OF_ONE_ROW = (
    "Write primary_key=[...], the columns that identify a row. A table of one row has a constant one: "
    '.withColumn("id", F.lit(1)), primary_key=["id"], recompute_by=[].'
)
_TABLE_DURATIONS = ("watermark", "depends_within", "trigger_interval", "freshness")
_DESCRIBED = re.compile(r"([A-Za-z][A-Za-z0-9_]*): (\S.*)")


class Strategy(StrEnum):
    """How the stream maintains a table."""

    APPEND = "append"
    LATEST = "latest"
    STATEFUL = "stateful"
    TOUCHED = "touched"

    @property
    def meaning(self) -> str:
        """The fate of rows, in words."""
        return {
            Strategy.APPEND: "every input row becomes its own rows at once",
            Strategy.LATEST: "the greatest row of each key is kept",
            Strategy.STATEFUL: "rows are revised until they close",
            Strategy.TOUCHED: "what a change of the inputs touches is computed again",
        }[self]

    @property
    def removes_repeats(self) -> bool:
        """Whether records that agree in their identity must count once: several of them make one row."""
        return self in (Strategy.STATEFUL, Strategy.TOUCHED)

    @property
    def has_state(self) -> bool:
        return self is Strategy.STATEFUL

    @property
    def follows_changes(self) -> bool:
        """Whether the table is refreshed by the changes of its inputs, without a streaming query."""
        return self is Strategy.TOUCHED


@dataclass(frozen=True, kw_only=True)
class Table:
    """A Delta table: a pure function of topics and other tables. A file declares it by `@table`.

    Args:
        primary_key: columns that identify an output row.
        event_time: the output column that dates a row (`timestamp` or `date`); None for a row that lives for ever.
        ends_at: the output column where the time that a row covers ends, as that of a session: a change within that
            time, or less than `depends_within` from it, has the whole row computed again.
        watermark: how long the stream waits for stragglers before it closes a row.
        closes_at: the output column that says when a row is final on the stream, at most `depends_within` after its
            `event_time`; needed by windows and joins.
        sequence_by: keep of each key only the row that is greatest here, compared left to right, nulls lowest. With
            `closes_at`, of the final rows that a join gives for one key.
        tolerances: column -> the relative error that it may have: a sketch, or an estimate by one. Rows that differ in
            nothing else, and here by no more than both errors together, are the same; `float("inf")` for the sketch.
            Doubles that are not named may differ by what another order of addition rounds; 0 for one that must not.
        lineage_columns: columns that name the log records which made a row. With it, each topic that the function reads
            has a column `record` too, a struct of `topic`, `partition` and `offset`. Rows that differ in nothing else
            are the same: a record that was sent twice has two offsets, and a row names one of them.
        recompute_by: an output row depends only on input rows with the same value in these columns ...
        scope_columns: input -> column of `recompute_by` -> what that input has for it, where that is no column of that
            name: another column, a field of one, or an expression in Spark's SQL: `{"person": {"seller": "id"}}`; None:
            nothing, so that each of its changes matters to all values.
        depends_within: ... and whose event time is within this distance of its own; None: however far. With it, and
            without `closes_at`, each micro-batch of the stream recomputes what its rows touch.
        late: `correct`: late records end in corrections; `drop`: they are counted and listed only.
        trigger_interval: how often the stream looks for new input, "2 seconds"; None: the setting `table_trigger_ms`.
            Longer intervals leave the machine to tables that must be fresher.
        checks: what a good row is; the batch publishes no row that breaks one.
        owner: who answers for the table: a team, an address.
        tags: words by which Airflow's UI finds the table's tasks, and `show` lists them.
        freshness: rows are to be visible this long after the broker had them; the stream's watch fails when they are
            not. None: within 15 minutes.
        approve_above: a rewrite that Airflow runs may change so many rows, its own and those of tables below it,
            without a person's approval; None: none.

    Attributes:
        derive: the function: DataFrames in, one DataFrame out; its parameters name its inputs, topics or tables of the
            domain.
        several: how a row can depend on several rows of an input, in words; empty: it does not, or that is not known.
        inferred: the parameters that the declaration leaves to what its function does.
        redundant: those that it gives, though the function says the same.
        kinds: column -> its type, with a `?` if it can be null, where that follows from the topics.
        lineage: column -> the columns of inputs that its value is made of, `input.column`, as far as that is known.
    """

    derive: Derive
    primary_key: Sequence[str]
    recompute_by: Sequence[str]
    event_time: str | None = None
    watermark: str = "0 seconds"
    closes_at: str | None = None
    sequence_by: Sequence[str] = ()
    ends_at: str | None = None
    scope_columns: Mapping[str, Mapping[str, str | None]] | None = None
    tolerances: Mapping[str, float] | None = None
    lineage_columns: Sequence[str] | None = None
    depends_within: str | None = None
    late: Literal["correct", "drop"] = "correct"
    trigger_interval: str | None = None
    checks: Sequence[Rule] = ()
    owner: str | None = None
    tags: Sequence[str] = ()
    freshness: str | None = None
    approve_above: int | None = None

    domain: str = ""
    name: str = ""
    description: str = ""
    several: str = ""
    inferred: tuple[str, ...] = ()
    redundant: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    lineage: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("primary_key", "recompute_by", "sequence_by", "tags"):
            require_list(name, getattr(self, name))
            set_fields(self, **{name: tuple(getattr(self, name))})
        set_fields(self, checks=tuple(self.checks))
        if not callable(self.derive):
            raise BadDeclaration(f"derive={self.derive!r}: expected a function from DataFrames to a DataFrame.")
        if not self.inputs:
            raise BadDeclaration(
                f"{self.derive.__name__} has no parameters.",
                hint="Its parameters name the topics and tables it reads.",
            )
        if not self.primary_key:
            raise BadDeclaration("primary_key is empty.", hint=KEY_OF_ONE_ROW)
        _require_late(self.late)
        if self.approve_above is not None and (type(self.approve_above) is not int or self.approve_above < 0):
            raise BadDeclaration(f"approve_above={self.approve_above!r}: expected a number of rows, 0 or more.")
        if self.closes_at and self.sequence_by and self.sequence_by[0] != self.event_time:
            raise BadDeclaration(
                f"With closes_at, sequence_by must start with event_time {self.event_time!r}; it starts with "
                f"{self.sequence_by[0]!r}.",
                hint="Of several rows of one key the later one must also be the one that closes later.",
            )
        if self.closes_at and not (self.event_time and self.depends_within):
            raise BadDeclaration(
                "closes_at needs event_time and depends_within.",
                hint="By them reconcile knows which rows a late record can change.",
            )
        if self.ends_at and (self.closes_at or not (self.event_time and self.depends_within)):
            raise BadDeclaration(
                "ends_at needs event_time and depends_within, and no closes_at.",
                hint="A row covers the time from event_time to ends_at; for sessions, depends_within is their gap.",
            )
        for source, columns in (self.scope_columns or {}).items():
            if source not in self.inputs or not set(columns) <= set(self.recompute_by):
                raise BadDeclaration(
                    f"scope_columns={self.scope_columns}: expected inputs, and columns of recompute_by.",
                    hint=f"The inputs are {', '.join(self.inputs)}; recompute_by is {list(self.recompute_by)}.",
                )
            for text in filter(None, columns.values()):
                require_value(text, f"scope_columns of {source}")
        if self.lineage_columns is not None:
            require_list("lineage_columns", self.lineage_columns)
            set_fields(self, lineage_columns=tuple(self.lineage_columns))
        errors = {**dict(self.tolerances or {}), **dict.fromkeys(self.lineage_columns or (), float("inf"))}
        set_fields(self, tolerances=errors)
        wrong = [c for c, error in errors.items() if c in self.primary_key or not error >= 0]
        if wrong:
            raise BadDeclaration(
                f"tolerances or lineage_columns name {', '.join(wrong)}: expected columns outside of primary_key and "
                'relative errors of at least 0, like {"planes": 0.02}.'
            )
        if self.depends_within and not self.event_time:
            raise BadDeclaration("depends_within needs event_time: the distance is measured from it.")
        require_none(found_by(*duration_checks(self, _TABLE_DURATIONS)))
        require_rules(self.checks, allowed=None, columns=None, of="a table")

    @property
    def columns(self) -> dict[str, str]:
        """Output column -> what it is, for those that the function's docstring describes by a line `name: text`."""
        return described_columns(self.derive)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the topics and tables that `derive` reads, in the order of its parameters."""
        return tuple(inspect.signature(self.derive).parameters)

    @property
    def full_name(self) -> str:
        """`domain.name`."""
        return f"{self.domain}.{self.name}"

    @property
    def statistics(self) -> list[str]:
        """The columns by which files of the table are chosen: their least and greatest values are kept of each."""
        columns = [*self.primary_key, *self.recompute_by, self.event_time, self.ends_at, self.closes_at]
        return list(dict.fromkeys(column for column in columns if column))

    def scope_in(self, source: Topic | Table) -> tuple[str | None, ...]:
        """The columns or expressions in Spark's SQL by which an input has the columns of `recompute_by`, in order.

        Without `scope_columns` it is the column of the same name, which the input need not have; None: nothing.
        """
        parameters = [source.name] if source.domain == self.domain else []
        called = self.scope_columns or {}
        names = next((called[p] for p in (*parameters, f"{source.domain}__{source.name}") if p in called), {})
        return tuple(names.get(column, column) for column in self.recompute_by)

    @property
    def watermark_ms(self) -> int:
        return parse_duration(self.watermark, "watermark")

    @property
    def trigger_interval_ms(self) -> int | None:
        return parse_duration(self.trigger_interval, "trigger_interval") if self.trigger_interval else None

    @property
    def depends_within_ms(self) -> int | None:
        return parse_duration(self.depends_within, "depends_within") if self.depends_within else None

    @property
    def freshness_ms(self) -> int | None:
        return parse_duration(self.freshness, "freshness") if self.freshness else None


class Parameters(TypedDict, total=False):
    """The parameters of `@table`; `Table` says what each means."""

    primary_key: Sequence[str]
    recompute_by: Sequence[str]
    event_time: str
    watermark: str
    closes_at: str
    sequence_by: Sequence[str]
    ends_at: str
    scope_columns: Mapping[str, Mapping[str, str | None]]
    tolerances: Mapping[str, float]
    lineage_columns: Sequence[str]
    depends_within: str
    late: Literal["correct", "drop"]
    trigger_interval: str
    checks: Sequence[Rule]
    owner: str
    tags: Sequence[str]
    freshness: str
    approve_above: int


@dataclass(frozen=True)
class Draft:
    """A function under `@table`; the registry makes the `Table` of it.

    Attributes:
        given: the parameters given, without those that are wrong by themselves.
        mistakes: in parameters that are wrong by themselves.
    """

    derive: Derive
    given: Mapping[str, Any]
    mistakes: tuple[BadDeclaration, ...] = ()

    def __call__(self, *inputs: DataFrame) -> DataFrame:
        """The rows of the function for these inputs."""
        return self.derive(*inputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the topics and tables that the function reads, in the order of its parameters."""
        return tuple(inspect.signature(self.derive).parameters)


def table(**parameters: Unpack[Parameters]) -> Callable[[Derive], Draft]:
    """Declare the function below as a table of the domain; `Table` says what each parameter means."""
    given: dict[str, Any] = dict(parameters)
    known = Parameters.__annotations__
    mistakes = {name: found_by(*checks) for name, checks in _checks_of(given, known).items()}
    sound = {name: value for name, value in given.items() if not mistakes[name]}
    return lambda function: Draft(function, sound, tuple(m for found in mistakes.values() for m in found))


def _checks_of(given: Mapping[str, Any], known: Iterable[str]) -> dict[str, list[Callable[[], object]]]:
    """Parameter -> what can be checked of it alone."""
    checks: dict[str, list[Callable[[], object]]] = {}
    for name, value in given.items():
        checks[name] = [partial(require_known, [name], known, "@table")]
        if name in ("primary_key", "recompute_by", "sequence_by", "lineage_columns", "tags"):
            checks[name].append(partial(require_list, name, value))
        elif name in _TABLE_DURATIONS and value is not None:
            checks[name].append(partial(parse_duration, value, name))
        elif name == "late":
            checks[name].append(partial(_require_late, value))
        elif name == "checks":
            checks[name] += [partial(require_rules, [rule], allowed=None, columns=None, of="a table") for rule in value]
    return checks


def _require_late(value: object) -> None:
    if value not in ("correct", "drop"):
        raise BadDeclaration(f"late={value!r}: expected 'correct' or 'drop'.")


def described_columns(function: Derive) -> dict[str, str]:
    """Column -> text, of each line `column: text` of the docstring; lines that are indented further go on."""
    described: dict[str, str] = {}
    last = None
    for line in (inspect.getdoc(function) or "").splitlines():
        head = _DESCRIBED.match(line)
        if head:
            last = head[1]
            described[last] = head[2]
        elif last and line.startswith("    "):
            described[last] += " " + line.strip()
        else:
            last = None
    return described
