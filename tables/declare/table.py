"""Tables as they are declared; each parameter is checked when the file is loaded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, overload

from twofold.infra.duration import parse_duration
from twofold.infra.errors import BadDeclaration
from twofold.quality.rules import Rule
from twofold.tables.declare.metadata_columns import described_columns
from twofold.tables.declare.output import Output, require_outputs
from twofold.tables.declare.parameter_checks import require_known, require_list, require_rules, set_fields
from twofold.tables.declare.refusals.mistake_list import found_by, require_none
from twofold.tables.declare.refusals.refused_keys import EMPTY_KEY, NO_SCOPE, NO_VALUE, TOLERANCE
from twofold.tables.declare.refusals.refused_names import NO_INPUT
from twofold.tables.declare.refusals.refused_times import CLOSES_LATER, CLOSES_WHEN, ENDS_WHEN, NEAR_WHAT
from twofold.tables.declare.topic import Topic
from twofold_algebra.expression_sql import column_of, names_in
from twofold_algebra.reading.expression_text import fault_of, value_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame

    from twofold_algebra.relations import Expr

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
P = ParamSpec("P")
_LISTS = ("primary_key", "recompute_by", "sequence_by", "lineage_columns", "tags", "pure")
_TABLE_DURATIONS = ("watermark", "depends_within", "freshness")


class Strategy(StrEnum):
    """How the stream maintains a table."""

    APPEND = "append"
    LATEST = "latest"
    STATEFUL = "stateful"
    TOUCHED = "touched"

    @property
    def meaning(self) -> str:
        """The treatment of rows, in words."""
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
class Parameters:
    """The parameters of `@table`.

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
        tolerances: column -> the relative error that it may have; needed for a sketch, an estimate by one, and a
            statistic such as a deviation, whose result depends on the order of rows. Rows that differ in nothing else,
            and here by no more than both errors together, are the same; `float("inf")` for a sketch.
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
        checks: what a good row is; the batch publishes no row that breaks one.
        owner: who answers for the table: a team, an address.
        tags: words by which Airflow's UI finds the table's tasks, and `show` lists them.
        freshness: rows are to be visible this long after the broker had them; the stream's watch fails when they are
            not. None: within 15 minutes.
        approve_above: a rewrite that Airflow runs may change so many rows, its own and those of tables below it,
            without a person's approval; None: none.
        outputs: copies of the table that follow it, `[to_postgres()]`.
        pure: modules of Python and of packages, `["phonenumbers"]`, for which the author vouches that what the function
            uses of them gives the same answer each time. Modules that compute (`math`, `re`, NumPy) are known to.
    """

    primary_key: Sequence[str] = ()
    recompute_by: Sequence[str] = ()
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
    checks: Sequence[Rule] = ()
    owner: str | None = None
    tags: Sequence[str] = ()
    freshness: str | None = None
    approve_above: int | None = None
    outputs: Sequence[Output] = ()
    pure: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Table(Parameters):
    """A Delta table: a pure function of topics and other tables. A file declares it by `@table`.

    Attributes:
        derive: the function: DataFrames in, one DataFrame out; its parameters name its inputs, topics or tables of the
            domain.
        several: how a row can depend on several rows of an input, in words; empty: it does not, or that is not known.
        inferred: the parameters that the declaration leaves to what its function does.
        redundant: those that it gives, though the function says the same.
        kinds: column -> its type, with a `?` if it can be null, where that follows from the topics.
        lineage: column -> the columns of inputs that its value is made of, `input.column`, as far as that is known.
        untraced: column -> why it may be made of others, too.
        influences: which rows count, and which row they go to -> the columns of inputs that decide it.
        window: the column with a window of time that the function returns; its rows have its start and end instead.
        result_columns: the columns of its rows, in order, if they are known without Spark.
    """

    derive: Derive
    domain: str = ""
    name: str = ""
    description: str = ""
    several: str = ""
    inferred: tuple[str, ...] = ()
    redundant: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    lineage: Mapping[str, Sequence[str]] = field(default_factory=dict)
    untraced: Mapping[str, str] = field(default_factory=dict)
    influences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    window: str = ""
    result_columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        require_none(found_by(*(check for name, value in vars(self).items() for check in _checks_of(name, value))))
        for name in (*_LISTS, "checks", "outputs"):
            if getattr(self, name) is not None:
                set_fields(self, **{name: tuple(getattr(self, name))})
        if not callable(self.derive):
            raise BadDeclaration(f"derive={self.derive!r}: expected a function from DataFrames to a DataFrame.")
        if not self.inputs:
            raise NO_INPUT.error(function=self.derive.__name__)
        if not self.primary_key:
            raise EMPTY_KEY.error()
        if self.closes_at and self.sequence_by and self.sequence_by[0] != self.event_time:
            raise CLOSES_LATER.error(time=self.event_time, first=self.sequence_by[0])
        if self.closes_at and not (self.event_time and self.depends_within):
            raise CLOSES_WHEN.error()
        if self.ends_at and (self.closes_at or not (self.event_time and self.depends_within)):
            raise ENDS_WHEN.error()
        for source, columns in (self.scope_columns or {}).items():
            if source not in self.inputs or not set(columns) <= set(self.recompute_by):
                raise NO_SCOPE.error(
                    given=self.scope_columns, inputs=", ".join(self.inputs), by=list(self.recompute_by)
                )
            for text in filter(None, columns.values()):
                if fault := fault_of(text):
                    raise NO_VALUE.error(input=source, text=text, fault=fault)
        errors = {**dict(self.tolerances or {}), **dict.fromkeys(self.lineage_columns or (), float("inf"))}
        set_fields(self, tolerances=errors)
        wrong = [c for c, error in errors.items() if c in self.primary_key or not error >= 0]
        if wrong:
            raise TOLERANCE.error(columns=", ".join(wrong))
        if self.depends_within and not self.event_time:
            raise NEAR_WHAT.error()

    @property
    def columns(self) -> dict[str, str]:
        """The descriptions of columns, from lines `column: text` of the function's docstring."""
        return described_columns(inspect.getdoc(self.derive))

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
        """The columns whose least and greatest values are kept per file, to select files."""
        columns = [*self.primary_key, *self.recompute_by, self.event_time, self.ends_at, self.closes_at]
        return list(dict.fromkeys(column for column in columns if column))

    def scope_in(self, source: Topic | Table) -> tuple[str | None, ...]:
        """Returns the columns or Spark SQL expressions by which an input has the columns of `recompute_by`, in order.

        Without `scope_columns` it is the column of the same name, which the input need not have; None: nothing.
        """
        parameters = [source.name] if source.domain == self.domain else []
        called = self.scope_columns or {}
        names = next((called[p] for p in (*parameters, f"{source.domain}__{source.name}") if p in called), {})
        return tuple(names.get(column, column) for column in self.recompute_by)

    def scope_values(self, source: Topic | Table) -> tuple[Expr | None, ...]:
        """Returns the values by which an input has the columns of `recompute_by`, in order; None: it has nothing."""
        named = zip(self.recompute_by, self.scope_in(source), strict=True)
        return tuple(column_of(text) if text == column else value_of(text) if text else None for column, text in named)

    def restricting(self, source: Topic | Table, columns: Collection[str]) -> dict[int, Expr]:
        """Returns the values that an input with these columns has, by the number of the column of `recompute_by`."""
        values = enumerate(self.scope_values(source))
        return {n: one for n, one in values if one and (read := names_in(one)) and read <= set(columns)}

    def scope_reads(self, source: Topic | Table) -> set[str]:
        """Returns the columns of an input that have the values of `recompute_by`, whether they exist or not."""
        return {name for one in self.scope_values(source) if one for name in names_in(one)}

    def ending_reads(self, topic: Topic) -> set[str]:
        """Returns those of the columns that have its values of `recompute_by` that end: what is covered, or was."""
        return set() if topic.compacted else self.scope_reads(topic) & topic.covered.keys()

    @property
    def watermark_ms(self) -> int:
        return parse_duration(self.watermark, "watermark")

    @property
    def depends_within_ms(self) -> int | None:
        return parse_duration(self.depends_within, "depends_within") if self.depends_within else None

    @property
    def freshness_ms(self) -> int | None:
        return parse_duration(self.freshness, "freshness") if self.freshness else None


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
        """Calls the function with these inputs."""
        return self.derive(*inputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the topics and tables that the function reads, in the order of its parameters."""
        return tuple(inspect.signature(self.derive).parameters)

    def columns_of(self, parameter: str) -> list[str]:
        """Lists the columns that a parameter names."""
        value = self.given.get(parameter) or ()
        return [value] if isinstance(value, str) else [column for column in value if isinstance(column, str)]


class _Declares(Protocol[P]):
    """The types of `@table`: it is called with the function alone, or with parameters first."""

    @overload
    def __call__(self, function: Derive, /) -> Draft: ...  # type: ignore[overload-overlap] # no parameter has a place
    @overload
    def __call__(self, *_: P.args, **given: P.kwargs) -> Callable[[Derive], Draft]: ...


def _taking(parameters: Callable[P, object]) -> Callable[[Callable[..., Any]], _Declares[P]]:
    """Gives a function, for editors and type checkers, the parameters of another one."""
    return lambda function: function


@_taking(Parameters)
def table(function: Derive | None = None, /, **given: Any) -> Draft | Callable[[Derive], Draft]:
    """Declares the function below as a table of the domain; `Parameters` says what each parameter means.

    All of them follow from the function where it is given alone, as by `@table` without parentheses.
    """
    _require(function is None or callable(function), f"@table({function!r}): expected parameters by their names.")
    known = [parameter.name for parameter in fields(Parameters)]
    mistakes = {
        name: found_by(partial(require_known, [name], known, "@table"), *_checks_of(name, value))
        for name, value in given.items()
    }
    sound = {name: value for name, value in given.items() if not mistakes[name]}
    declare = partial(Draft, given=sound, mistakes=tuple(chain.from_iterable(mistakes.values())))
    return declare(function) if function else declare


def _checks_of(name: str, value: Any) -> Iterator[Callable[[], object]]:
    """Returns what can be checked of a parameter alone."""
    if name in _LISTS:
        yield partial(require_list, name, value)
    elif name in _TABLE_DURATIONS and value is not None:
        yield partial(parse_duration, value, name)
    elif name == "late":
        yield partial(_require, value in ("correct", "drop"), f"late={value!r}: expected 'correct' or 'drop'.")
    elif name == "approve_above":
        is_count = value is None or (type(value) is int and value >= 0)
        yield partial(_require, is_count, f"approve_above={value!r}: expected a number of rows, 0 or more.")
    elif name == "outputs":
        yield partial(require_outputs, value)
    elif name == "checks":
        yield from (partial(require_rules, [rule], allowed=None, columns=None, of="a table") for rule in value)


def _require(is_right: bool, otherwise: str) -> None:
    if not is_right:
        raise BadDeclaration(otherwise)
