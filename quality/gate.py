"""The batch gate: measure tables, let Great Expectations agree if it is installed, keep what was found."""

from __future__ import annotations

import json
import logging
import math
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from twofold.infra.atomic_write import write_atomically
from twofold.quality.check_result import RuleVerdict, Verdict
from twofold.quality.great_expectations_suite import (
    PANDAS_ROWS,
    Rows,
    Suites,
    open_suites,
    rows_to_judge,
    run_name,
)
from twofold.quality.row_checks import measure, naming
from twofold.quality.rules import Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from twofold.infra.project.settings import Settings

_AHEAD = 4
"""Tables whose rows wait in memory, at most: to load Great Expectations takes as long as Spark needs for some."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A table that is to be checked.

    Attributes:
        df: is read several times: persist it if it is costly, and pin its version if it is written to.
        table: full name.
        key: columns that name a row in the samples.
    """

    df: DataFrame
    table: str
    rules: Sequence[Rule]
    key: Sequence[str]


def gate(subjects: Iterable[Subject], settings: Settings, now: datetime) -> list[Verdict]:
    """Judges tables by their rules; writes the results and the Data Docs under `settings.home/quality`.

    Failing rows raise nothing: the caller decides, with `Verdict.raise_if_failed`. Spark measures tables while Great
    Expectations is loaded, or judges those before them; without the extra `quality-docs`, Spark alone judges.

    Args:
        subjects: taken from a thread of its own, a few ahead.
        now: the clock of `fresh_within`, with its offset; two runs of one table at one instant share their files.

    Returns:
        Verdicts in the order of the tables, with `report`, the first page of the Data Docs if they are written, and
        `results`, this run as JSON. A rule on which the two counts differ fails with the greater one.

    Raises:
        BadDeclaration, SchemaMismatch: rules that do not fit their table; those before it are judged.
    """
    # Of modules that import each other, two threads that load them at once can get halves.
    import_module("pyspark.sql.functions")
    agrees = find_spec("great_expectations") is not None
    measured = map(partial(_measured, now=now, with_rows=agrees), subjects)
    verdicts = []
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="measure") as ahead:
        following = deque(ahead.submit(next, measured, None) for _ in range(_AHEAD))
        with open_suites(settings) if agrees else nullcontext() as suites:
            while (measures := following.popleft().result()) is not None:
                following.append(ahead.submit(next, measured, None))
                verdicts.append(_judged(*measures, suites, settings, now))
    return verdicts


def _measured(subject: Subject, *, now: datetime, with_rows: bool) -> tuple[Verdict, Rows | None]:
    rules = list(dict.fromkeys(subject.rules))
    verdict = measure(subject.df, rules, now, key=subject.key, table=subject.table)
    if not with_rows:
        return verdict, None
    with naming(rules):
        rows = rows_to_judge(subject.df, rules, now, on_spark=verdict.rows > PANDAS_ROWS)
    return verdict, rows


def _judged(verdict: Verdict, rows: Rows | None, suites: Suites | None, settings: Settings, now: datetime) -> Verdict:
    """Writes the results of the run atomically to one file, with what Great Expectations says if it is there."""
    table, more = verdict.table, {}
    if rows and suites:
        rules = [measured.rule for measured in verdict.rules]
        with naming(rules):
            report = suites.validate(rows, table, rules, now)
        checked = tuple(_agreed(*pair) for pair in zip(verdict.rules, report.failing, strict=True))
        verdict = replace(verdict, rules=checked, report=report.index)
        more = {"great_expectations": _strict(report.validation)}
    results = settings.home / "quality" / "results" / table / f"{run_name(now)}.json"
    results.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(results, json.dumps(verdict.as_json() | more, indent=1, allow_nan=False))
    failed, of = len(verdict.failed), len(verdict.rules)
    log.info("checked %s: %d of %d rules failed, %d rows", table, failed, of, verdict.rows)
    return replace(verdict, results=results)


def _agreed(measured: RuleVerdict, failing: int) -> RuleVerdict:
    if measured.failing == failing:
        return measured
    log.error("%s: Great Expectations finds %d failing rows", measured, failing)
    seen = f"{measured.observed}; Great Expectations counts {failing}".removeprefix("; ")
    return replace(measured, failing=max(measured.failing, failing), observed=seen)


def _strict(value: object) -> object:
    """Replaces NaN and infinities, which JSON lacks, by texts."""
    if isinstance(value, dict):
        return {name: _strict(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
