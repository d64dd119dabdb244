"""Commands that rebuild a table from the log, promote it, and roll back."""

from __future__ import annotations

from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.commands.run_commands import ApprovedBy, TableOrDomain
from twofold.cli.console import Json, print_json
from twofold.cli.run_view import (
    Preview,
    RewriteMode,
    Why,
    plan_document,
    print_plan,
    print_published,
    publish_now,
    run_rewrite,
)
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from twofold.batch.ledgers.run_result import RunResult
    from twofold.tables.refresh.open_platform import Platform

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="A table, by full or bare name.")]
TableOrTopic = Annotated[str, typer.Argument(metavar="TABLE", help="A table or a topic, by full or bare name.")]


def rebuild(
    table: TableOrDomain,
    promote: Annotated[
        bool, typer.Option("--promote", help="Publish the plan at once; without this option it is only shown and kept.")
    ] = False,
    approved_by: ApprovedBy = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over instead of continuing an interrupted run.")
    ] = False,
    why: Why = "",
    as_json: Json = False,
) -> None:
    """Run the streaming code over the whole archived log into a shadow of TABLE, and plan to publish the difference.

    The live table stays in use meanwhile. `publish` writes the difference in one commit, also with a changed definition
    or other columns; `rollback` reverts that commit. An interrupted run continues where it stopped. With DOMAIN, each
    of its tables is rebuilt, after the tables that it reads; --json then prints a list.
    """
    from twofold.batch.plan.rebuild_table import plan_rebuild
    from twofold.streaming.rebuild.reingest import reingest
    from twofold.tables.declare.registry import load

    settings, registry = Settings.from_environment(), load()
    documents = []
    for declared in registry.chosen([table]):
        plan = plan_rebuild(settings, declared.full_name, reingest, getuser(), why, fresh=fresh)
        outcomes = publish_now(settings, plan, approved_by) if promote and plan.changes else []
        documents.append(plan_document(plan) | {"promoted": outcomes})
        if not as_json:
            print_plan(plan)
            print_published(plan, outcomes)
    if as_json:
        print_json(documents if table in registry.domains else documents[0])


def rollback(
    table: TableOrTopic,
    run: Annotated[
        str, typer.Option("--run", metavar="RUN", help="Any run of `ledger.runs`, instead of the newest promotion.")
    ] = "",
    preview: Preview = False,
    why: Why = "",
    as_json: Json = False,
) -> None:
    """Revert what a run changed in TABLE, in one commit: the newest promotion, or the run that --run names.

    Rows that were changed since stay as they are. If a topic is named, --run takes back a replay or a redrive, and its
    changes in the tables that read the topic.
    """
    settings = Settings.from_environment()
    from twofold.batch.rewrite.rollback import rollback as take_back
    from twofold.batch.rewrite.rollback import rollback_decoded
    from twofold.tables.declare.registry import load
    from twofold.tables.declare.topic import Topic

    declared = load().find(table)

    def taken_back(platform: Platform) -> list[RunResult]:
        if isinstance(declared, Topic):
            return rollback_decoded(platform, declared, run)
        return [take_back(platform, declared, run)]

    command = ["rollback", declared.full_name, *(["--run", run] if run else [])]
    run_rewrite(settings, [declared.full_name], taken_back, "rollback", command, RewriteMode(preview, why, as_json))
