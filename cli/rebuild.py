"""Commands that make a table anew from the log beside the live one, put it in its place, and take that back."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer

from cli.screen import Json, make_table, out, print_json
from cli.work import ApprovedBy, print_differences, print_outcomes
from infra.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from batch.log_reader import Log
    from batch.promotion import Comparison, Promotion
    from infra.offset_ranges import Ranges
    from tables.engine.declarations.declaration import Table
    from tables.engine.refresh.open_platform import Platform

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="A table, by full or bare name.")]


def rebuild(
    table: TableName,
    promote: Annotated[
        bool, typer.Option("--promote", help="Put it in the live table's place; without it, it is only compared.")
    ] = False,
    digest: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="With --promote: only if exactly the rows differ that have this digest."),
    ] = None,
    approved_by: ApprovedBy = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin again where an earlier run was cut short.")] = False,
    as_json: Json = False,
) -> None:
    """Run the streaming code over the whole archived log into a shadow of TABLE, and compare it with the live one.

    The live table keeps serving. A changed definition, also one of other columns, goes live with --promote, in one
    commit that `rollback` takes back. A run that was cut short goes on where it was.
    """
    with _rebuilt(Settings.from_environment(), table, fresh=fresh) as promotion:
        comparison = promotion.compare()
        outcome = promotion.promote(digest or "", approved_by or getuser()) if promote else None
    if as_json:
        print_json(
            {
                "comparison": dataclasses.asdict(comparison) | {"is_equal": comparison.is_equal},
                "promoted": dataclasses.asdict(outcome) if outcome else None,
            }
        )
        return
    _print(comparison)
    if outcome:
        print_outcomes([outcome], as_json=False)
        out.print(f"Taken back by: ./twofold rollback {comparison.table}")
    elif not comparison.is_equal:
        out.print(f"Made live by: ./twofold rebuild {comparison.table} --promote")


def rollback(table: TableName, as_json: Json = False) -> None:
    """Take the newest promotion of TABLE back, in one commit."""
    settings = Settings.from_environment()
    from batch.promotion import rollback as take_back
    from tables.engine.declarations.registry import load
    from tables.engine.refresh.open_platform import opened

    declared = load().find_table(table)
    with opened(settings, "rollback", [declared.domain]) as platform:
        print_outcomes([take_back(platform, declared)], as_json)


@contextmanager
def _rebuilt(settings: Settings, name: str, *, fresh: bool) -> Iterator[Promotion]:
    """The table, made anew as far as the live platform has taken in the log."""
    from batch.log_reader import Log
    from infra.errors import ProcessFailed
    from infra.process.file_locks import exclusive
    from tables.engine.declarations.registry import load
    from tables.engine.delta.shadow_lake import drop
    from tables.engine.refresh.open_platform import opened

    table = load().find_table(name)
    with exclusive(settings.home / "run" / f"{table.full_name}.rebuild.lock") as ours:
        if not ours:
            raise ProcessFailed(f"{table.full_name} is being rebuilt already.", hint="Wait until that run has ended.")
        if fresh:
            drop(settings, table)
        with opened(settings, "rebuild", [table.domain], runs_streams=True) as live:
            yield made_anew(live, table, Log(live, list(live.registry.above(table).topics)))


def made_anew(live: Platform, table: Table, log: Log) -> Promotion:
    """Bring the table's shadow to where the live platform has taken in the log."""
    from batch.promotion import Promotion
    from streaming.refill import refill
    from tables.engine.delta.shadow_lake import drop, is_stale, shadow

    aside = shadow(live, table)
    if is_stale(aside):
        drop(live.lake.settings, table)
        aside = shadow(live, table)
    refill(aside, _ranges(live, aside, log), log.read)
    promotion = Promotion(live, aside, table)
    promotion.settle()
    return promotion


def _ranges(live: Platform, aside: Platform, log: Log) -> dict[str, Ranges]:
    """Of each topic all that there is, as far as the live platform has taken it in."""
    from tables.engine.events.ingested_offsets import frontier

    ranges: dict[str, Ranges] = {}
    for name, topic in aside.registry.topics.items():
        ends = frontier(live.lake, topic).ends
        ranges[name] = {p: (start, ends[p]) for p, start in log.starts(name).items() if p in ends}
    return ranges


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
    out.print(make_table(f"{comparison.table}: made anew from the log, against the live table", ["", ""], rows))
    if comparison.examples:
        print_differences(f"{comparison.table}: rows that differ", comparison.examples)
