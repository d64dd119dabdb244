"""Writes the first version of a declaration, with its test."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated

import typer

from cli.screen import out
from infra.errors import BadArgument
from infra.settings import ROOT

if TYPE_CHECKING:
    from tables.declaration import Table, Topic
    from tables.registry import Registry

app = typer.Typer(no_args_is_help=True, help="Write a new declaration, with its test.")

OVER_TOPIC = Template('''"""What ${name} is, in one line for the people who query it."""

from __future__ import annotations

from tables import DataFrame, F, between, not_null, table


@table(watermark="2 hours", rules=[not_null("${column}"), between("records", 1, None)])
def ${name}(${input}: DataFrame) -> DataFrame:
    """One row per ${column} and hour.

    hour: start of the hour
    closes_at: end of the hour
    records: how many ${input} there were
    """
    return (
        ${input}.groupBy("${column}", F.window("${event_time}", "1 hour"))
        .agg(F.count("*").alias("records"))
        .select(
            "${column}",
            F.col("window.start").alias("hour"),
            F.col("window.end").alias("closes_at"),
            "records",
        )
    )
''')

OVER_TABLE = Template('''"""What ${name} is, in one line for the people who query it."""

from __future__ import annotations

from tables import DataFrame, F, between, not_null, table


@table(rules=[not_null("${column}"), between("records", 1, None)])
def ${name}(${input}: DataFrame) -> DataFrame:
    """One row per ${column}.

    records: how many rows of ${input} it has
    """
    return ${input}.groupBy("${column}").agg(F.count("*").alias("records"))
''')

TEST = Template('''"""The table ${full_name}: what it says, and that the stream and the batch say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.settings import Settings
from tests.parity import assert_parity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_stream_and_the_batch_agree_after_reconcile(spark: SparkSession, settings: Settings) -> None:
    assert_parity(spark, settings, "${full_name}")
''')


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files of a new table."""

    declaration: Path
    test: Path


@app.callback()
def new() -> None:
    """Write a new declaration, with its test."""


@app.command()
def table(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case letters, digits and _.")],
    domain: Annotated[str, typer.Option(help="The folder under tables/.")] = "flights",
    reads: Annotated[
        str, typer.Option("--input", help="The topic or table of the domain that it reads.")
    ] = "departures",
) -> None:
    """Write tables/DOMAIN/NAME.py, which works, and tests/tables/test_NAME.py."""
    written = write_table(name, domain=domain, reads=reads)
    out.print(f"Wrote {written.declaration} and {written.test}.", soft_wrap=True)
    out.print("[dim]Next:[/] edit both, `make test`, then ./twofold up takes it into the stream and into Airflow.")


def write_table(name: str, *, domain: str, reads: str, root: Path = ROOT) -> Written:
    """Write the two files below `root`.

    Raises:
        BadArgument: the name cannot be used or is taken, the input is unknown, or a file is there already.
    """
    from tables.registry import load

    registry = load(root / "tables")
    registry.require_domain(domain)
    _require_name(name, domain, registry)
    source = _input(reads, domain, registry)
    written = Written(
        declaration=root / "tables" / domain / f"{name}.py", test=root / "tests" / "tables" / f"test_{name}.py"
    )
    for path in (written.declaration, written.test):
        if path.exists():
            raise BadArgument(f"{path} is there already.", hint="Choose another name, or remove the file.")
    texts = {
        written.declaration: _declaration(name, source),
        written.test: TEST.substitute(full_name=f"{domain}.{name}"),
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return written


def _require_name(name: str, domain: str, registry: Registry) -> None:
    from tables.declaration import NAME

    if not NAME.match(name) or keyword.iskeyword(name) or name.endswith("_quarantine"):
        raise BadArgument(
            f"{name!r} cannot name a table.",
            hint="Use lower-case letters, digits and _, beginning with a letter; the ending _quarantine is taken.",
        )
    if f"{domain}.{name}" in {**registry.topics, **registry.tables}:
        raise BadArgument(f"{domain}.{name} is declared already.", hint=f"See tables/{domain}/{name}.py.")


def _input(reads: str, domain: str, registry: Registry) -> Topic | Table:
    bare = reads.removeprefix(f"{domain}.")
    known: Mapping[str, Topic | Table] = {**registry.topics, **registry.tables}
    found = known.get(f"{domain}.{bare}")
    if found is None:
        names = ", ".join(d.name for d in known.values() if d.domain == domain)
        raise BadArgument(f"--input={reads!r} is no topic or table of the domain {domain}.", hint=f"It has {names}.")
    return found


def _declaration(name: str, source: Topic | Table) -> str:
    from tables.declaration import Topic

    if not isinstance(source, Topic):
        return OVER_TABLE.substitute(name=name, input=source.name, column=source.key[0])
    return OVER_TOPIC.substitute(name=name, input=source.name, event_time=source.event_time, column=_grouping(source))


def _grouping(topic: Topic) -> str:
    """A text column that groups records: not one that tells them apart, if there is another."""
    texts = [column for column, kind in topic.types.items() if kind.name == "string" and not kind.nullable]
    return next((column for column in texts if column not in (*topic.identity, topic.key)), topic.key)
