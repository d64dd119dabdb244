"""The batch gate: measure a table, let Great Expectations agree, keep what was found."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from infra.files import write_at_once
from quality.check import measure, naming
from quality.rules import Rule
from quality.suite import PANDAS_ROWS, Outcome, Report, run_name, validate
from quality.verdict import RuleVerdict, Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from infra.settings import Settings

log = logging.getLogger(__name__)


def gate(
    df: DataFrame,
    table_full_name: str,
    rules: Sequence[Rule],
    key: Sequence[str],
    settings: Settings,
    now: datetime,
    *,
    pandas_rows: int = PANDAS_ROWS,
) -> Verdict:
    """Judge a table by its rules; write the results and the Data Docs under `settings.home/quality`.

    Failing rows raise nothing: the caller decides, with `Verdict.raise_if_failed`. The table is read several times:
    persist it where it is costly, and pin its version where it is written to.

    Args:
        key: columns that name a row in the samples.
        now: the clock of `fresh_within`, with its offset; two runs of one table at one instant share their files.
        pandas_rows: larger tables are judged by the Spark engine of Great Expectations.

    Returns:
        The verdict with `report`, the first page of the Data Docs, and `results`, this run as JSON. A rule on which the
        two counts differ fails with the greater one.

    Raises:
        BadDeclaration, SchemaMismatch: rules that do not fit the table.
    """
    rules = list(dict.fromkeys(rules))
    verdict = measure(df, rules, now, key=key, table=table_full_name)
    with naming(rules):
        report = validate(df, table_full_name, rules, settings, now, rows=verdict.rows, pandas_rows=pandas_rows)
    checked = tuple(_agreed(*pair) for pair in zip(verdict.rules, report.outcomes, strict=True))
    results = settings.home / "quality" / "results" / table_full_name / f"{run_name(now)}.json"
    verdict = replace(verdict, rules=checked, report=report.index, results=results)
    _keep(verdict, report, results)
    log.info(
        "checked %s: %d of %d rules failed, %d rows", table_full_name, len(verdict.failed), len(rules), verdict.rows
    )
    return verdict


def _agreed(measured: RuleVerdict, outcome: Outcome) -> RuleVerdict:
    if (measured.passed, measured.failing) == (outcome.passed, outcome.failing):
        return measured
    log.error("%s: Great Expectations finds %d failing rows", measured, outcome.failing)
    seen = f"{measured.observed}; Great Expectations counts {outcome.failing}".removeprefix("; ")
    return replace(measured, failing=max(measured.failing, outcome.failing, int(not outcome.passed)), observed=seen)


def _keep(verdict: Verdict, report: Report, results: Path) -> None:
    """Write the run as one file that is whole or absent."""
    results.parent.mkdir(parents=True, exist_ok=True)
    kept = verdict.as_json() | {"great_expectations": _strict(report.validation)}
    write_at_once(results, json.dumps(kept, indent=1, allow_nan=False))


def _strict(value: object) -> object:
    """The value without NaN and infinities, which JSON lacks: they become texts."""
    if isinstance(value, dict):
        return {name: _strict(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
