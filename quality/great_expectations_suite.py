"""Great Expectations from the same rules: a suite per table, kept results, Data Docs.

The suite judges a projection of the table that both engines of Great Expectations read alike: the columns of the rules,
and one column for each rule that has no expectation of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.infra.errors import QualityFailed
from twofold.quality.rules import Rule

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql import Column, DataFrame

    from twofold.infra.project.settings import Settings

PANDAS_ROWS = 200_000
"""Rows up to which the pandas engine judges: one Spark job instead of several per expectation."""

KEPT_RUNS = 100
"""Runs of a table that stay in the Data Docs; the index reads each of them (4 ms)."""


@dataclass(frozen=True, kw_only=True)
class SuiteReport:
    """A validated suite.

    Attributes:
        index: the first page of the Data Docs.
        failing: rows that break each rule.
        validation: the whole result as Great Expectations writes it.
    """

    index: Path
    failing: tuple[int, ...]
    validation: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of a table as Great Expectations judges them: in pandas, or, of a large table, if Spark has them."""

    batch: pd.DataFrame | DataFrame
    is_on_spark: bool


def rows_to_judge(df: DataFrame, rules: Sequence[Rule], now: datetime, *, on_spark: bool) -> Rows:
    """Selects the rows and columns of a table that the rules read.

    Args:
        now: the clock for `fresh_within`.
    """
    projected = _projected(df, rules, now)
    return Rows(batch=projected if on_spark else _in_pandas(projected), is_on_spark=on_spark)


@contextlib.contextmanager
def open_suites(settings: Settings) -> Iterator[Suites]:
    """Opens the suites of rules; at the end of the block their pages are built.

    One process at a time: others that share the home wait.
    """
    home = settings.home / "quality"
    with _alone(home):
        suites = Suites(home, _context(home))
        try:
            yield suites
        finally:
            suites.write_pages()


class Suites:
    """Great Expectations over the files of one home. Most of its cost is loading it and writing pages."""

    def __init__(self, home: Path, context: Any) -> None:
        self._home, self._context = home, context
        self._sources: dict[bool, Any] = {}
        self._judged: list[Any] = []

    def validate(self, rows: Rows, table: str, rules: Sequence[Rule], now: datetime) -> SuiteReport:
        """Judges a table by the suite of its rules, and stores the result.

        Args:
            rules: each once, as for `rows_to_judge`.
            now: names the run.

        Raises:
            QualityFailed: an expectation could not be computed.
        """
        asset = self._source(rows.is_on_spark).add_dataframe_asset(table)
        definition = asset.add_batch_definition_whole_dataframe("table")
        result = _run(self._context, definition, rows.batch, _suite(self._context, table, rules), table, now)
        self._judged.append(result)
        _forget(self._home, table)
        # They come grouped by column.
        by_rule = {result_of_rule.expectation_config.meta["rule"]: result_of_rule for result_of_rule in result.results}
        failing = tuple(_failing(rule, by_rule[str(rule)]) for rule in rules)
        return SuiteReport(index=self._home / "docs" / "index.html", failing=failing, validation=result.to_json_dict())

    def write_pages(self) -> None:
        """Writes the pages of the runs and suites, and the index, all at once: each time compiles templates."""
        if self._judged:
            self._context.build_data_docs(
                resource_identifiers=[i for judged in self._judged for i in _identifiers(judged)]
            )

    def _source(self, on_spark: bool) -> Any:
        if on_spark not in self._sources:
            sources = self._context.data_sources
            self._sources[on_spark] = sources.add_spark("spark") if on_spark else sources.add_pandas("pandas")
        return self._sources[on_spark]


def run_name(now: datetime) -> str:
    """Formats the instant of a run for file names, which sort by time."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"


def _run(context: Any, definition: Any, batch: Any, suite: Any, table: str, now: datetime) -> Any:
    import great_expectations as gx
    from great_expectations.core.run_identifier import RunIdentifier

    validation = context.validation_definitions.add(gx.ValidationDefinition(name=table, data=definition, suite=suite))
    return validation.run(
        batch_parameters={"dataframe": batch},
        result_format="SUMMARY",
        run_id=RunIdentifier(run_name=run_name(now), run_time=now),
    )


def _suite(context: Any, table: str, rules: Sequence[Rule]) -> Any:
    import great_expectations as gx

    suite = gx.ExpectationSuite(name=table, notes=f"The rules of {table}.")
    for rule in rules:
        suite.add_expectation(_expectation(rule))
    return context.suites.add_or_update(suite)


def _expectation(rule: Rule) -> Any:
    name, arguments = rule.expectation()
    kind: Any = getattr(import_module("great_expectations.expectations"), name)
    return kind(**arguments, notes=str(rule), meta={"rule": str(rule)})


def _projected(df: DataFrame, rules: Sequence[Rule], now: datetime) -> DataFrame:
    from pyspark.sql import functions as F

    names = dict.fromkeys(name for rule in rules for name in rule.columns)
    columns = [_plain(df, name) for name in names]
    columns += [column for rule in rules if (column := rule.own_column(df, now)) is not None]
    return df.select(*(columns or [F.lit(1).alias("row")]))


def _plain(df: DataFrame, name: str) -> Column:
    """Casts the column to a type that Great Expectations can handle: dates to instants, nested values to text."""
    from pyspark.sql import functions as F

    of = df.schema[name].dataType.typeName()
    if of in ("date", "timestamp_ntz"):
        return F.col(name).cast("timestamp").alias(name)
    return F.col(name).cast("string").alias(name) if of in ("array", "map", "struct", "variant") else F.col(name)


def _in_pandas(df: DataFrame) -> pd.DataFrame:
    """Converts the rows to pandas, so that null and NaN stay different and integers stay integers."""
    import pandas as pd
    import pyarrow as pa

    def kept(of: pa.DataType) -> Any:
        plain = pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_boolean(of)
        return pd.ArrowDtype(of) if plain else None

    return df.toArrow().to_pandas(types_mapper=kept)


def _failing(rule: Rule, found: Any) -> int:
    # Either one record of what was raised, or one per metric.
    for info in (found.exception_info, *found.exception_info.values()):
        if isinstance(info, dict) and info.get("raised_exception"):
            raise QualityFailed(
                f"Great Expectations cannot judge the rule {rule}: {info.get('exception_message')}",
                hint="Nothing is known about the table. Compare the rule with the type of its column.",
            )
    return int(found.result.get("unexpected_count") or not found.success)


def _context(home: Path) -> Any:
    """Opens a context that stores suites, results and pages in files, and uses no network.

    Data sources and what ties them to suites are created by each run: nothing that a killed run left half written can
    stop the next.
    """
    import great_expectations as gx
    from great_expectations.data_context.types.base import DataContextConfig, ProgressBarsConfig

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return gx.get_context(
        mode="ephemeral",
        project_config=DataContextConfig(
            stores={
                "expectations_store": _store("ExpectationsStore", home / "suites"),
                "validation_results_store": _store("ValidationResultsStore", home / "validations"),
                "validation_definition_store": _store("ValidationDefinitionStore"),
                "checkpoint_store": _store("CheckpointStore"),
            },
            expectations_store_name="expectations_store",
            validation_results_store_name="validation_results_store",
            checkpoint_store_name="checkpoint_store",
            data_docs_sites={
                "docs": {
                    "class_name": "SiteBuilder",
                    "show_how_to_buttons": False,
                    "store_backend": _files(home / "docs"),
                    "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
                }
            },
            analytics_enabled=False,
            progress_bars=ProgressBarsConfig(globally=False, metric_calculations=False),
        ),
    )


def _store(kind: str, directory: Path | None = None) -> dict[str, object]:
    backend = _files(directory) if directory else {"class_name": "InMemoryStoreBackend"}
    return {"class_name": kind, "store_backend": backend}


def _files(directory: Path) -> dict[str, object]:
    return {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(directory)}


def _identifiers(result: Any) -> tuple[object, object]:
    """Returns the identifiers of a run and of its suite."""
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    suite = ExpectationSuiteIdentifier(name=result.suite_name)
    run = ValidationResultIdentifier(
        expectation_suite_identifier=suite, run_id=result.meta["run_id"], batch_identifier=result.batch_id
    )
    return run, suite


def _forget(home: Path, table: str) -> None:
    """Removes all but the newest runs of a table; their verdicts stay in `results`."""
    runs, pages = (home.joinpath(kind, *table.split(".")) for kind in ("validations", "docs/validations"))
    kept = {run.name for run in sorted(runs.iterdir())[-KEPT_RUNS:]}
    for run in (*runs.iterdir(), *(pages.iterdir() if pages.is_dir() else ())):
        if run.name not in kept:
            shutil.rmtree(run)


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Holds a lock, so that only one process rewrites the files of the context."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
