"""Infers parameters of a table from its function, or the reason why one cannot be inferred.

The inference is a pure function of the code, so it is stored next to the code, like Python's bytecode, under a digest
of its inputs. Loading declarations then imports no Spark.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from twofold.infra.atomic_write import write_atomically
from twofold.infra.duration import parse_duration
from twofold.infra.errors import BadDeclaration, Unproved
from twofold.tables.declare.declaration_files import DeclarationFile
from twofold.tables.declare.refusals.declaration_refusal import error_of
from twofold.tables.declare.refusals.mistake_list import require_none
from twofold.tables.declare.refusals.refused_keys import (
    KEY_OF_ONE_ROW,
    MISSING,
    OTHER_COLUMN,
    OTHER_GROUPS,
    OTHER_SCOPE,
)
from twofold.tables.declare.refusals.refused_names import NOT_RETURNED, not_returned
from twofold.tables.declare.refusals.refused_times import NEAR, OTHER_TIME
from twofold.tables.declare.table import NAMING, Draft, Table
from twofold.tables.declare.topic import Topic
from twofold_algebra import algebra_errors
from twofold_algebra.dependencies import (
    by_source,
    copied,
    influences,
    lineage,
    producer_of,
    read_twice,
    scope_of,
    scope_values,
    several,
    unknown_in,
    untraced,
)
from twofold_algebra.expression_sql import sql_of
from twofold_algebra.keys import determined, is_time_window, keys, missing_of_key
from twofold_algebra.plan_mistakes import ASKS_FOR_ROWS, find_mistakes
from twofold_algebra.reading.connect_plan import read_function
from twofold_algebra.reading.expression_text import fault_of
from twofold_algebra.refusal import PlanMistake
from twofold_algebra.relations import (
    Call,
    Column,
    Distinct,
    Expr,
    Group,
    Join,
    Relation,
    Union,
    parts,
    relations,
)
from twofold_algebra.relations import Source as Input
from twofold_algebra.times import TimeFacts, times_of, window_start, with_window_times
from twofold_algebra.value_kinds import is_exact, kind_of

_ALGEBRA = Path(algebra_errors.__file__).parent
INFERRED = ("primary_key", "recompute_by", "scope_columns", "event_time", "depends_within", "closes_at", "ends_at")
"""The parameters that can be left to the function."""
UNREAD = "what only Spark can read"
_ONE_ROW = "the function makes one row of all, which no column identifies"
RECORD = "record"
"""The column that says, for a declaration with `lineage_columns`, which log record an event is."""


@dataclass(frozen=True)
class Inference:
    """The parameters and facts that follow from the plan of a function.

    Attributes:
        parameters: parameter of `@table` -> its value.
        reasons: parameter -> why the plan does not say it.
        scopes: column of the result that `recompute_by` may name -> input -> the expression of its rows that has the
            value; None: not known.
        columns: those of the result, in order; None: not all are known.
        kinds: column of the result -> its type, with a `?` if it can be null, where that is known.
        lineage: column of the result -> the columns of inputs that its value is made of, `input.column`.
        untraced: column of the result -> why it may be made of others, too.
        influences: what is decided -> the columns of inputs, `input.column`, that decide it for all rows.
        copied: column of the result -> the input, and its column whose values the column has.
        several: how a row can depend on several rows of an input; empty: it does not.
        groups: the columns that the function groups by, all of which it returns.
        other_time: the column by which the function makes windows, where that is not the event time.
        window: the column with the window of a group, in whose place the table has its start and end; empty: none.
        key_lacks: the columns that the primary key that is given lacks to tell the rows apart; None: it does.
        mistakes: what is wrong with the function.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    scopes: Mapping[str, Mapping[str, str]] | None = None
    columns: Sequence[str] | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    lineage: Mapping[str, Sequence[str]] = field(default_factory=dict)
    untraced: Mapping[str, str] = field(default_factory=dict)
    influences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    copied: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    several: str = ""
    groups: Sequence[str] = ()
    other_time: str = ""
    window: str = ""
    key_lacks: Sequence[str] | None = None
    mistakes: Sequence[PlanMistake] = ()


Source = Topic | Table


def complete(draft: Draft, inference: Inference, inputs: Mapping[str, Sequence[str] | None]) -> dict[str, Any]:
    """Merges given and inferred parameters, given ones first; `inputs` has the known columns of each input.

    Raises:
        BadDeclaration: a parameter that is needed is neither, or a given one contradicts the plan.
    """
    parameters = {**inference.parameters, **draft.given}
    if "scope_columns" not in draft.given:
        parameters["scope_columns"] = scope_columns(parameters.get("recompute_by", ()), inference, inputs)
    require_none(
        [*_wrong_names(draft, inference), *_contradictions(draft, inference), *_missing(parameters, inference)]
    )
    return parameters


def scope_columns(
    by: Sequence[str], inference: Inference, inputs: Mapping[str, Sequence[str] | None]
) -> dict[str, dict[str, str | None]] | None:
    """Returns the expressions for columns of `recompute_by` in inputs, for those without a column of that name.

    Args:
        inputs: input -> its columns; None: not known.
    """
    if inference.scopes is None:
        return None
    renamed: dict[str, dict[str, str | None]] = {}
    for column in by:
        values = inference.scopes.get(column, {})
        for name, columns in inputs.items():
            may_have_it = columns is None or column in columns
            if values.get(name) != (column if may_have_it else None):
                renamed.setdefault(name, {})[column] = values.get(name)
    return renamed or None


def redundant(draft: Draft, inference: Inference, inputs: Mapping[str, Sequence[str] | None]) -> tuple[str, ...]:
    """Lists the parameters that are given as they would be inferred; `inputs` as in `complete`."""
    by = draft.given.get("recompute_by", inference.parameters.get("recompute_by", ()))
    inferred = {**inference.parameters, "scope_columns": scope_columns(by, inference, inputs)}
    both = [name for name in INFERRED if draft.given.get(name) is not None and inferred.get(name) is not None]
    return tuple(name for name in both if _meaning(name, draft.given[name]) == _meaning(name, inferred[name]))


def _meaning(name: str, value: Any) -> Any:
    if name == "depends_within":
        return parse_duration(value, name)
    return list(value) if name in ("primary_key", "recompute_by") else value


def _missing(inferred: Mapping[str, Any], inference: Inference) -> Iterator[BadDeclaration]:
    """Yields the required parameters that are missing, one mistake for each reason."""
    missing: dict[str, list[str]] = {}
    for name in ("primary_key", "recompute_by"):
        if name not in inferred:
            missing.setdefault(inference.reasons.get(name, "the function's plan does not say it"), []).append(name)
    for reason, names in missing.items():
        parameters = KEY_OF_ONE_ROW if reason == _ONE_ROW else ", ".join(f"{name}=[...]" for name in names)
        yield MISSING.error(names=" and ".join(names), reason=reason, parameters=parameters)


def plan_mistakes(derive: Callable[..., object], inference: Inference, *, on_stream: bool) -> list[BadDeclaration]:
    """Returns the mistakes that the plan of a function shows: those that only a stream cannot run, or all others."""
    return [
        error_of(mistake, f"{derive.__name__} ", Unproved if mistake.runs and not on_stream else BadDeclaration)
        for mistake in inference.mistakes
        if mistake.only_on_stream == on_stream
    ]


def infer(draft: Draft, sources: Mapping[str, Source], columns: Mapping[str, Sequence[str] | None]) -> Inference:
    """Infers parameters and facts from the plan of the function.

    Args:
        sources: parameter of the function -> what it reads.
        columns: the same -> the columns of that input; None: not known.
    """
    try:
        root = read_function(draft.derive, columns, {name: _kinds(source) for name, source in sources.items()})
    except algebra_errors.Unreadable as fault:
        # A function that cannot be read may make a row of several.
        unread = Inference(reasons=dict.fromkeys(("primary_key", "recompute_by"), str(fault)), several=UNREAD)
        if fault.asks:
            return replace(unread, mistakes=[replace(ASKS_FOR_ROWS.mistake(function=fault.asks), runs=False)])
        return unread
    given = [name for what in NAMING for name in draft.columns_of(what)]
    root, window = with_window_times(root, given, has_key="primary_key" in draft.given)
    return replace(_Inferring(draft, root, sources).infer(), window=window)


def kept(
    file: DeclarationFile, sources: Mapping[str, Source], columns: Mapping[str, Sequence[str] | None]
) -> Inference:
    """Reads the inference from the file next to the declaration, or infers and writes it."""
    digest = _digest(file, sources, columns)
    place = file.path.parent / "__pycache__" / f"{file.path.stem}.inferred.json"
    try:
        document = json.loads(place.read_text("utf-8"))
        if document.pop("digest") == digest:
            mistakes = [PlanMistake(**mistake) for mistake in document.pop("mistakes")]
            return Inference(**document, mistakes=mistakes)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # nothing there, or nothing of this version
        pass
    inference = infer(file.draft, sources, columns)
    try:
        place.parent.mkdir(exist_ok=True)
        write_atomically(place, json.dumps({"digest": digest, **asdict(inference)}, indent=1), lasting=False)
    except OSError:  # a file system that is read only: it is inferred again by the next process
        pass
    return inference


def _digest(file: DeclarationFile, sources: Mapping[str, Source], columns: Mapping[str, Sequence[str] | None]) -> str:
    facts = [
        [name, type(s).__name__, s.event_time, _identity(s), columns[name], dict(_kinds(s))]
        for name, s in sources.items()
    ]
    given = repr([file.draft.given.get(name) for name in NAMING])
    return hashlib.sha256("\n".join([_own_code(), json.dumps(facts), given, *file.code.lines]).encode()).hexdigest()


@functools.cache
def _own_code() -> str:
    code = [Path(__file__), *sorted(_ALGEBRA.rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()


def _identity(source: Source) -> tuple[str, ...]:
    """Returns the columns that identify a row of the source."""
    return source.same_record if isinstance(source, Topic) else tuple(source.primary_key)


def _kinds(source: Source) -> Mapping[str, str]:
    """Returns the types of its columns, with a `?` if they can be null, as all of a compacted topic but its key."""
    if isinstance(source, Table):
        return source.kinds
    return {name: kind.text.removesuffix("?") + "?" * (kind.nullable or source.compacted)
            for name, kind in source.columns.items()}  # fmt: skip


class _Inferring:
    def __init__(self, draft: Draft, root: Relation, sources: Mapping[str, Source]) -> None:
        self.draft, self.root, self.sources = draft, root, sources
        self.made_by = producer_of(root)
        self.parameters: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}

    def infer(self) -> Inference:
        root = self.root
        identities = {name: _identity(source) for name, source in self.sources.items()}
        scopes = None if unknown_in(root) else self._scopes()
        never_closes = bool(read_twice(root)) or any(isinstance(source, Table) for source in self.sources.values())
        times = TimeFacts({}) if unknown_in(root) else times_of(root, self._is_event_time, never_closes=never_closes)
        self.parameters |= times.parameters
        groups = self._find_key(identities)
        self._find_scope(scopes, times)
        key = [value for name in self.draft.given.get("primary_key", ()) if (value := root.value([name]))]
        return Inference(
            parameters=self.parameters,
            reasons=self.reasons,
            scopes=scopes,
            columns=None if root.is_open else root.names,
            kinds={c.name: kind for c in root.columns if c.name and (kind := kind_of(c.value))},
            lineage=_named(lineage(root)),
            untraced=untraced(root),
            influences=_named(influences(root)),
            copied=copied(root),
            several=several(root),
            groups=groups,
            other_time=times.other_time,
            key_lacks=missing_of_key(key, root, identities) if key else None,
            mistakes=find_mistakes(root, identities, self.draft.given.get("tolerances") or ()),
        )

    def _is_event_time(self, value: Expr) -> bool:
        return isinstance(value, Column) and value.name == self.sources[value.source].event_time

    def _scopes(self) -> dict[str, dict[str, str]]:
        """Maps columns of the result and inputs to the expression by which the input's rows matter."""
        scopes: dict[str, dict[str, str]] = {}
        named = [*self.root.names, *(self._wanted() if self.root.is_open else ())]
        for name in dict.fromkeys(named):
            if value := self.root.value([name]):
                values = by_source(self.root, scope_of(self.root, value))
                written = {
                    source: value.name if isinstance(value, Column) else sql
                    for source, value in values.items()
                    if (sql := sql_of(value)) and not fault_of(sql)
                }
                if written:
                    scopes[name] = written
        return scopes

    def _wanted(self) -> list[str]:
        """Lists names of which the result may have some: those that the declaration gives, and columns of inputs."""
        given = [*self.draft.given.get("primary_key", ()), *self.draft.given.get("recompute_by", ())]
        return [*given, *(name for source in self.sources.values() for name in _identity(source))]

    def _find_key(self, identities: Mapping[str, Sequence[str]]) -> list[str]:
        """Infers `primary_key`, and returns the columns of the groups if the rows are groups."""
        made_by, found = self.made_by, keys(self.root, identities)
        if "sequence_by" in self.draft.given and not isinstance(made_by, Group | Distinct):
            self.reasons["primary_key"] = "with sequence_by it groups the rows whose greatest is kept"
            return []
        named = [self._named(key, identities) for key in found]
        key = next((names for names in named if names), [])
        if not key:
            self.reasons["primary_key"] = self._why_no_key(found)
            return []
        self.parameters["primary_key"] = key
        if isinstance(made_by, Input) and not several(self.root):
            time = self.sources[made_by.name].event_time
            dated = self.root.name_of(Column(made_by.name, time, made_by.mention)) if time else None
            if dated:
                self.parameters.setdefault("event_time", dated)
        # Of a join less than all columns can identify the group: one says which row of an input it is of.
        is_by_all = isinstance(made_by, Group) and made_by.by and made_by.is_plain
        return key if is_by_all and not several(made_by.below[0]) else []

    def _named(self, key: Sequence[Expr], identities: Mapping[str, Sequence[str]]) -> list[str]:
        """Returns the columns of the result that hold a key, or enough of it that the others follow; empty: no key.

        Any column is a key of a single row; one without fractions can be compared.
        """
        held = {one: name for one in key if (name := self._name_of(one))}
        follows = determined(held, self.root, identities)
        if not held and all(map(follows, key)):
            return [c.name for c in self.root.columns if c.name and is_exact(c.value)][:1]
        return list(dict.fromkeys(held.values())) if all(one in held or follows(one) for one in key) else []

    def _name_of(self, value: Expr) -> str | None:
        if not is_time_window(value):
            return self.root.name_of(value)
        groups = [group for group in relations(self.root) if isinstance(group, Group) and value in group.shown]
        return window_start(self.root, groups[0], value) if groups and isinstance(value, Call) else None

    def _why_no_key(self, found: Sequence[Sequence[Expr]]) -> str:
        """Returns the reason why none of the keys that are known is one of the result."""
        root, made_by, unknown = self.root, self.made_by, unknown_in(self.root)
        if not found:
            is_plain = isinstance(made_by, Group) and made_by.is_plain
            if unknown or is_plain or not isinstance(made_by, Join | Union | Group):
                return f"the function {f'uses {unknown}' if unknown else 'makes several rows of one'}"
            if isinstance(made_by, Group):
                return "of `rollup`, `cube` or grouping sets the function does not return grouping_id()"
            what = "a join can give several rows for one of each input"
            return what if isinstance(made_by, Join) else f"a {made_by.kind} can give several rows of one key"
        lost = [one for one in found[0] if self._name_of(one) is None]
        if not all(found):
            return _ONE_ROW
        if isinstance(made_by, Group):
            by = [one for one, shown in zip(made_by.by, made_by.shown, strict=True) if shown in lost]
            words = ["the start of its window" if is_time_window(v.value) else v.name or "an expression" for v in by]
            return f"the function groups by {(*words, 'several sets of columns')[0]}, which it does not return"
        inner = [part for one in lost for part in parts(one) if isinstance(part, Column)]
        names, of = (", ".join(dict.fromkeys(found)) for found in ([c.name for c in inner], [c.source for c in inner]))
        if names and root.is_open:
            return f"whether the result has {names} of {of} is not known before Spark runs"
        lacks = f"{names} of {of}, which identify its rows" if names else "a column that tells its rows apart"
        return f"the result lacks {lacks}"

    def _find_scope(self, scopes: Mapping[str, Mapping[str, str]] | None, times: TimeFacts) -> None:
        """Finds `recompute_by`: empty if each row may depend on all rows."""
        if scopes is None:
            self.reasons["recompute_by"] = f"the function uses {unknown_in(self.root)}"
            return
        dated = times.parameters.get("event_time")
        by_time = None if dated and isinstance(self.root.value([dated]), Column) else dated
        key = self.draft.given.get("primary_key", self.parameters.get("primary_key", ()))
        columns = [self.root.name_of(*values) for values in scope_values(self.root)]
        of_several = [name for name in columns if name in key or not key or not isinstance(self.made_by, Union)]
        proved = ([name for name in dict.fromkeys(names) if name in scopes and name != by_time]
                  for names in (of_several, key))  # fmt: skip
        self.parameters["recompute_by"] = next((names for names in proved if names), [])


def _named(columns: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, list[str]]:
    return {name: [f"{source}.{column}" for source, column in of] for name, of in columns.items() if of}


def _wrong_names(draft: Draft, inference: Inference) -> Iterator[BadDeclaration]:
    """Yields names that the result lacks, if all of its columns are known."""
    if inference.columns is None:
        return
    returned = {name.lower() for name in inference.columns}
    for what in NAMING:
        missing = [column for column in draft.columns_of(what) if column.lower() not in returned]
        if missing:
            yield NOT_RETURNED.error(**not_returned(draft.derive, what, missing, inference.columns))


def _contradictions(draft: Draft, inference: Inference) -> Iterator[BadDeclaration]:
    """Yields parameters that the plan disproves."""
    given, inferred, name = draft.given, inference.parameters, draft.derive.__name__
    key, groups = set(given.get("primary_key", ())), set(inference.groups)
    # Of the rows of several groups `sequence_by` keeps one.
    is_kept_of_several = bool(given.get("sequence_by")) and key < groups
    if key and groups and key != groups and not is_kept_of_several:
        yield OTHER_GROUPS.error(key=list(given["primary_key"]), function=name, groups=", ".join(inference.groups))
    yield from _wrong_scopes(draft, inference)
    if given.get("depends_within") and "depends_within" in inferred:
        least = parse_duration(inferred["depends_within"], "depends_within")
        if parse_duration(given["depends_within"], "depends_within") < least:
            yield NEAR.error(given=given["depends_within"], function=name, distance=inferred["depends_within"])
    if given.get("depends_within") and "depends_within" not in inferred and inference.other_time:
        yield OTHER_TIME.error(given=given["depends_within"], function=name, column=inference.other_time)


def _wrong_scopes(draft: Draft, inference: Inference) -> Iterator[BadDeclaration]:
    """Yields the given scopes that contradict the plan."""
    given, scopes, name = draft.given, inference.scopes, draft.derive.__name__
    if scopes is None or inference.columns is None:
        return
    by = given.get("recompute_by", inference.parameters.get("recompute_by", ()))
    wrong = [column for column in given.get("recompute_by", ()) if column in inference.columns and column not in scopes]
    if wrong:
        yield OTHER_SCOPE.error(given=list(by), function=name, columns=", ".join(wrong), choice=list(scopes))
    for source, columns in (given.get("scope_columns") or {}).items():
        for column, written in columns.items():
            right = scopes.get(column, {}).get(source)
            if source in draft.inputs and column in by and column not in wrong and written != right:
                yield OTHER_COLUMN.error(column=column, written=written, input=source, function=name, expression=right)
