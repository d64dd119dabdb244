"""Commands that rebuild a table from the log, promote it, and roll back."""

from __future__ import annotations

import dataclasses
from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.run_commands import ApprovedBy, TableOrDomain, print_differences, print_outcomes
from cli.console import Json, make_table, out, print_json
from infra.errors import BadArgument
from infra.settings import Settings

if TYPE_CHECKING:
    from tables.refresh.shadow_lake import Comparison

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="A table, by full or bare name.")]
TableOrTopic = Annotated[str, typer.Argument(metavar="TABLE", help="A table or a topic, by full or bare name.")]


def rebuild(
    table: TableOrDomain,
    promote: Annotated[
        bool, typer.Option("--promote", help="Publish it in the live table; without this option it is only compared.")
    ] = False,
    digest: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="With --promote: only if exactly the rows differ that have this digest."),
    ] = None,
    approved_by: ApprovedBy = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over instead of continuing an interrupted run.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the streaming code over the whole archived log into a shadow of TABLE, and compare it with the live table.

    The live table stays in use meanwhile. --promote publishes the shadow in one commit, also with a changed definition
    or other columns; `rollback` reverts that commit. An interrupted run continues where it stopped. With DOMAIN, each
    of its tables is rebuilt, after the tables that it reads; --json then prints a list.
    """
    from batch.rewrite.rebuild_table import rebuilt
    from streaming.rebuild.reingest import reingest
    from tables.declare.registry import load

    settings, registry = Settings.from_environment(), load()
    names = [found.full_name for found in registry.chosen([table])]
    is_domain = table in registry.domains
    if is_domain and digest:
        raise BadArgument("--digest belongs to the rows of one table.", hint=f"Name one of {', '.join(names)}.")
    documents = []
    for name in names:
        with rebuilt(settings, name, reingest, fresh=fresh) as promotion:
            comparison = promotion.compare()
            outcome = promotion.promote(digest or "", approved_by or getuser()) if promote else None
        if as_json:
            documents.append(
                {
                    "comparison": dataclasses.asdict(comparison) | {"is_equal": comparison.is_equal},
                    "promoted": dataclasses.asdict(outcome) if outcome else None,
                }
            )
            continue
        _print(comparison)
        if outcome:
            print_outcomes([outcome], as_json=False)
            out.print(f"To revert it: ./twofold rollback {comparison.table}")
        elif not comparison.is_equal:
            out.print(f"To publish it: ./twofold rebuild {comparison.table} --promote")
    if as_json:
        print_json(documents if is_domain else documents[0])


def rollback(
    table: TableOrTopic,
    run: Annotated[
        str, typer.Option("--run", metavar="RUN", help="Any run of `ledger.runs`, instead of the newest promotion.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Revert what a run changed in TABLE, in one commit: the newest promotion, or the run that --run names.

    Rows that were changed since stay as they are. Of a topic, --run takes back a replay or a redrive, and what it
    changed in the tables that read the topic.
    """
    settings = Settings.from_environment()
    from batch.rewrite.rollback import rollback as take_back
    from batch.rewrite.rollback import rollback_decoded
    from tables.declare.registry import load
    from tables.declare.topic import Topic
    from tables.refresh.open_platform import opened

    declared = load().find(table)
    with opened(settings, "rollback", [declared.domain]) as platform:
        if isinstance(declared, Topic):
            outcomes = rollback_decoded(platform, declared, run)
        else:
            outcomes = [take_back(platform, declared, run)]
        print_outcomes(outcomes, as_json)


def _print(comparison: Comparison) -> None:
    rows = [
        ("rows compared", f"{comparison.rows:,}"),
        ("missing in the live table", f"{comparison.missing:,}"),
        ("extra in it", f"{comparison.extra:,}"),
        ("different", f"{comparison.changed:,}"),
        ("new columns", ", ".join(comparison.new_columns) or "none"),
        ("columns gone", ", ".join(comparison.gone_columns) or "none"),
        ("compared are rows before", comparison.before or "all"),
    ]
    out.print(make_table(f"{comparison.table}: rebuilt from the log, compared with the live table", ["", ""], rows))
    if comparison.examples:
        print_differences(f"{comparison.table}: rows that differ", comparison.examples)
