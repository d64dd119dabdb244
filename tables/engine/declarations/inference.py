"""Parameters of a table that follow from what its function does: what they are, and why one cannot be had.

What is inferred is a pure function of the code, so it is kept next to the code, as Python keeps its bytecode, under a
digest of all that it follows from. Loading declarations then imports no Spark.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from infra.atomic_write import write_atomically
from infra.duration import parse_duration
from infra.errors import BadDeclaration
from tables.engine.declarations.code_fingerprint import read_code
from tables.engine.declarations.declaration import KEY_OF_ONE_ROW, NAMING, Draft, Table, Topic
from tables.engine.declarations.mistake_list import require_none
from tables.engine.declarations.plan_mistakes import PlanMistake, find_mistakes
from tables.engine.declarations.unresolved_plan import (
    ALL_ROWS,
    SQL_TEXT,
    AnyOf,
    Column,
    Edge,
    Extreme,
    Frame,
    Group,
    Join,
    Origin,
    PlanReader,
    Shifted,
    Truncated,
    Window,
    plan_of,
)

_READERS = ("unresolved_plan.py", "plan_mistakes.py")
INFERRED = ("primary_key", "recompute_by", "scope_columns", "event_time", "depends_within", "closes_at", "ends_at")
"""The parameters that can be left to the function."""
UNREAD = "what only Spark can read"
_ONE_ROW = "the function makes one row of all, which no column identifies"
_UNREAD = {SQL_TEXT: "SQL text is not read", ALL_ROWS: _ONE_ROW}
RECORD = "record"
"""The column that says, for a declaration with `lineage_columns`, which log record an event is."""


@dataclass(frozen=True)
class Inference:
    """What the plan of a function says.

    Attributes:
        parameters: parameter of `@table` -> its value.
        reasons: parameter -> why the plan does not say it.
        scope: the columns that `recompute_by` may name; None: not known.
        columns: those of the result, in order; None: not all are known.
        several: how a row can depend on several rows of an input; empty: it does not.
        mistakes: what is wrong with the function.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    scope: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    several: str = ""
    mistakes: Sequence[PlanMistake] = ()


Source = Topic | Table


def complete(draft: Draft, inference: Inference) -> dict[str, Any]:
    """The parameters given, and those inferred where none is given.

    Raises:
        BadDeclaration: a parameter that is needed is neither, or a given one contradicts the plan.
    """
    found = {**inference.parameters, **draft.given}
    if "scope_columns" in inference.parameters and "scope_columns" not in draft.given:
        by = set(found.get("recompute_by", ()))
        called = {source: {c: n for c, n in own.items() if c in by} for source, own in found["scope_columns"].items()}
        found["scope_columns"] = {source: own for source, own in called.items() if own} or None
    require_none([*_wrong_names(draft, inference), *_contradictions(draft, inference), *_missing(found, inference)])
    return found


def _missing(found: Mapping[str, Any], inference: Inference) -> Iterator[BadDeclaration]:
    """What is needed and there is not, one mistake for each reason."""
    missing: dict[str, list[str]] = {}
    for name in ("primary_key", "recompute_by"):
        if name not in found:
            missing.setdefault(inference.reasons.get(name, "the function's plan does not say it"), []).append(name)
    for reason, names in missing.items():
        means = "it means" if len(names) == 1 else "they mean"
        write = f"{', '.join(f'{name}=[...]' for name in names)}; docs/reference/declarations.md says what {means}"
        yield BadDeclaration(
            f"@table needs {' and '.join(names)}, which cannot be inferred: {reason}.",
            hint=KEY_OF_ONE_ROW if reason == _ONE_ROW else f"Write {write}.",
        )


def require_sound(function: str, mistakes: Sequence[PlanMistake]) -> None:
    """Refuse a function that its plan shows to be wrong.

    Raises:
        BadDeclaration: the first mistake, with the others in the fact `more`.
    """
    if mistakes:
        first, *more = mistakes
        others = [{"message": f"{function} {mistake.message}", "hint": mistake.hint} for mistake in more]
        raise BadDeclaration(f"{function} {first.message}", hint=first.hint, more=others)


def infer(draft: Draft, sources: Mapping[str, Source], columns: Mapping[str, Sequence[str] | None]) -> Inference:
    """What the plan of the function says.

    Args:
        sources: parameter of the function -> what it reads.
        columns: the same -> the columns of that input; None: not known.
    """
    try:
        relation = plan_of(draft.derive, columns)
    except BadDeclaration as fault:
        # A function that cannot be read may make a row of several.
        return Inference(reasons=dict.fromkeys(("primary_key", "recompute_by"), fault.message), several=UNREAD)
    frame = PlanReader(columns).read(relation)
    mistakes = find_mistakes(relation, columns, {name: _identity(source) for name, source in sources.items()})
    inferred = _Inferring(draft, frame, sources).infer()
    names = None if frame.is_open else tuple(frame.columns)
    return replace(inferred, columns=names, several=frame.several, mistakes=mistakes)


def kept(
    file: Path, draft: Draft, sources: Mapping[str, Source], columns: Mapping[str, Sequence[str] | None]
) -> Inference:
    """The same, from the file next to the declaration where there is one; else it is written there."""
    digest = _digest(draft, sources, columns)
    place = file.parent / "__pycache__" / f"{file.stem}.inferred.json"
    try:
        found = json.loads(place.read_text("utf-8"))
        if found.pop("digest") == digest:
            mistakes = [PlanMistake(**mistake) for mistake in found.pop("mistakes")]
            return Inference(**found, mistakes=mistakes)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # nothing there, or nothing of this version
        pass
    inference = infer(draft, sources, columns)
    try:
        place.parent.mkdir(exist_ok=True)
        write_atomically(place, json.dumps({"digest": digest, **asdict(inference)}, indent=1), lasting=False)
    except OSError:  # a file system that is read only: it is inferred again by the next process
        pass
    return inference


def _digest(draft: Draft, sources: Mapping[str, Source], columns: Mapping[str, Sequence[str] | None]) -> str:
    facts = [[name, type(s).__name__, s.event_time, _identity(s), columns[name]] for name, s in sources.items()]
    lines = [_own_code(), json.dumps(facts), repr(draft.given.get("primary_key")), str("sequence_by" in draft.given)]
    return hashlib.sha256("\n".join([*lines, *read_code(draft.derive)]).encode()).hexdigest()


@functools.cache
def _own_code() -> str:
    own = Path(__file__)
    return hashlib.sha256(b"".join(p.read_bytes() for p in (own, *map(own.with_name, _READERS)))).hexdigest()


def _identity(source: Source) -> tuple[str, ...]:
    """The columns that identify a row."""
    return source.same_record if isinstance(source, Topic) else tuple(source.primary_key)


class _Inferring:
    def __init__(self, draft: Draft, frame: Frame, sources: Mapping[str, Source]) -> None:
        self.draft, self.frame, self.sources = draft, frame, sources
        self.has_tables = any(isinstance(source, Table) for source in sources.values())

    def infer(self) -> Inference:
        frame = self.frame
        if frame.group is not None:
            return self._of_group(frame.group)
        if frame.join is not None:
            return self._of_join(frame.join)
        if frame.several or len(frame.inputs) != 1:
            why = _UNREAD.get(frame.several, f"the function uses {frame.several or 'several inputs'}")
            return Inference(reasons={"primary_key": why, "recompute_by": why})
        return self._of_rows()

    def _time_of(self, source: str) -> Column | None:
        time = self.sources[source].event_time
        return Column(source, time) if time else None

    def _is_event_time(self, origin: Origin) -> bool:
        return isinstance(origin, Column) and origin == self._time_of(origin.input)

    def _same_named(self, names: Iterable[str]) -> list[str]:
        """Those that hold the value of an input's column of the same name."""
        return [name for name in names if isinstance(o := self.frame.origin(name), Column) and o.name == name]

    def _of_rows(self) -> Inference:
        frame, (name,) = self.frame, self.frame.inputs
        parameters: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        identity = _identity(self.sources[name])
        found = {column: frame.name_among(Column(name, column)) for column in identity}
        lost = [column for column, output in found.items() if output is None]
        if "sequence_by" in self.draft.given:
            reasons["primary_key"] = "with sequence_by it groups the rows whose greatest is kept"
        elif frame.is_multiplied:
            reasons["primary_key"] = "the function makes several rows of one"
        elif lost and frame.is_open:
            reasons["primary_key"] = (
                f"whether the result has {', '.join(lost)} of {name} is not known before Spark runs"
            )
        elif lost:
            reasons["primary_key"] = f"the result lacks {', '.join(lost)} of {name}, which identify its rows"
        else:
            parameters["primary_key"] = [output for output in found.values() if output]
            time = self._time_of(name)
            dated = frame.name_among(time) if time else None
            if dated:
                parameters["event_time"] = dated
        key = self.draft.given.get("primary_key", parameters.get("primary_key", ()))
        same = self._same_named(key)
        if same:
            parameters["recompute_by"] = same
        else:
            reasons["recompute_by"] = f"no column of the primary key has the name of a column of {name}"
        return Inference(parameters, reasons, scope=self._same_named(frame.columns))

    def _of_group(self, group: Group) -> Inference:
        parameters: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        key: list[str] = []
        for name, origin in group.by:
            output = self._of_window(origin, parameters, reasons) if isinstance(origin, Window) else None
            output = output or (self.frame.name_among(origin) if not isinstance(origin, Window) else None)
            if output is None:
                what = "the start of its window" if isinstance(origin, Window) else name
                reasons.setdefault("primary_key", f"the function groups by {what}, which it does not return")
            else:
                key.append(output)
                self._of_day(origin, output, parameters)
        if self.frame.is_multiplied:
            reasons["primary_key"] = "the function makes several rows of one"
        if "primary_key" not in reasons:
            parameters["primary_key"] = key
        scope = self._same_named(key)
        if len(set(self.frame.inputs)) == 1:
            parameters["recompute_by"] = scope
        else:
            reasons["recompute_by"] = "the function groups the rows of a join"
        return Inference(parameters, reasons, scope=scope)

    def _of_window(self, window: Window, parameters: dict[str, Any], reasons: dict[str, str]) -> str | None:
        """The column of the window's start, with the parameters that follow from the window."""
        named, start, end = self.frame.name_among, Edge(window, True), Edge(window, False)
        is_dated = self._is_event_time(window.time)
        first, last = Extreme(window.time, True), Extreme(window.time, False)
        begins = named(start) or (named(first) if window.is_session else None)
        if not is_dated:
            return begins
        if begins:
            parameters |= {"event_time": begins, "depends_within": window.length}
        ends = named(last) or named(end) if window.is_session else named(end)
        if begins and ends and window.is_session:
            parameters["ends_at"] = ends
        elif begins and ends and not self.has_tables:
            parameters["closes_at"] = ends
        return begins

    def _of_day(self, origin: Origin, output: str, parameters: dict[str, Any]) -> None:
        if isinstance(origin, Truncated) and self._is_event_time(origin.time):
            parameters |= {"event_time": output, "depends_within": origin.within}

    def _of_join(self, join: Join) -> Inference:
        why = "a join can give several rows for one of each input"
        parameters: dict[str, Any] = {}
        scope: list[str] = []
        called: dict[str, dict[str, str]] = {}
        for a, b in join.equal:
            if not isinstance(a, Column) or not isinstance(b, Column) or (a.input == b.input and a.name != b.name):
                continue
            output = self.frame.name_among(*_of_either(a, b, join.how))
            if output is None or output in scope or (a.input == b.input and output != a.name):
                continue
            scope.append(output)
            for side in (a, b):
                if side.name != output:
                    called.setdefault(side.input, {})[output] = side.name
        reasons = {"primary_key": why}
        if scope:
            parameters["recompute_by"] = scope
        else:
            reasons["recompute_by"] = "the function returns no column in which both inputs agree"
        if called:
            parameters["scope_columns"] = called
        for left, right, least, greatest in join.near:
            if least is not None and greatest is not None and self._is_event_time(left) and self._is_event_time(right):
                self._of_bound(join, left, right, least, greatest, parameters)
        return Inference(parameters, reasons, scope=scope)

    def _of_bound(
        self, join: Join, left: Origin, right: Origin, least: Shifted, greatest: Shifted, parameters: dict[str, Any]
    ) -> None:
        """What follows from `left + least <= right <= left + greatest`, one of the distances being nothing."""
        if least.ms == 0:
            first, last = left, greatest
        elif greatest.ms == 0:
            first, last = right, Shifted(right, -least.ms, least.by)
        else:
            return
        either = [time for time in _of_either(left, right, join.how) if time == first or isinstance(time, AnyOf)]
        dated = self.frame.name_among(*either)
        if dated is None:
            return
        parameters |= {"event_time": dated, "depends_within": last.by}
        closes = [Shifted(time, last.ms, last.by) for time in either]
        closes_at = self.frame.name_among(*closes)
        if closes_at and not self.has_tables:
            parameters["closes_at"] = closes_at


def _of_either(left: Origin, right: Origin, how: str) -> list[Origin]:
    """What has the value in which both sides of a join agree, also in a row without a match."""
    sides = {"inner": [left, right], "right_outer": [right], "full_outer": []}.get(how, [left])
    return [*sides, AnyOf((left, right)), AnyOf((right, left))]


def _wrong_names(draft: Draft, inference: Inference) -> Iterator[BadDeclaration]:
    """Names that the result lacks, where all its columns are known."""
    if inference.columns is None:
        return
    known = {name.lower() for name in inference.columns}
    for what in NAMING:
        value = draft.given.get(what) or ()
        wanted = [value] if isinstance(value, str) else list(value)
        missing = [column for column in wanted if isinstance(column, str) and column.lower() not in known]
        if missing:
            yield BadDeclaration(
                f"{what} names {', '.join(missing)}, which {draft.derive.__name__} does not return.",
                hint=f"It returns {', '.join(inference.columns)}.",
            )


def _contradictions(draft: Draft, inference: Inference) -> Iterator[BadDeclaration]:
    """Parameters that the plan disproves."""
    given, inferred = draft.given, inference.parameters
    name = draft.derive.__name__
    key, groups = set(given.get("primary_key", ())), set(inferred.get("primary_key", ()))
    # Of the rows of several groups `sequence_by` keeps one.
    is_kept_of_several = bool(given.get("sequence_by")) and key < groups
    if key and groups and inference.several and key != groups and not is_kept_of_several:
        yield BadDeclaration(
            f"primary_key={list(given['primary_key'])} contradicts {name}, which groups by "
            f"{', '.join(inferred['primary_key'])}.",
            hint="Leave primary_key out, or group by other columns.",
        )
    wrong = [] if inference.scope is None else [c for c in given.get("recompute_by", ()) if c not in inference.scope]
    if wrong:
        yield BadDeclaration(
            f"recompute_by={list(given['recompute_by'])} contradicts {name}: a row depends on rows with another "
            f"{', '.join(wrong)}.",
            hint=f"Choose from {', '.join(inference.scope)}." if inference.scope else "Write recompute_by=[].",
        )
    if given.get("depends_within") and "depends_within" in inferred:
        least = parse_duration(inferred["depends_within"], "depends_within")
        if parse_duration(given["depends_within"], "depends_within") < least:
            yield BadDeclaration(
                f"depends_within={given['depends_within']!r} contradicts {name}, in which rows depend on rows that are "
                f"{inferred['depends_within']} away.",
                hint="Leave depends_within out, or lengthen it.",
            )
