"""Commands that open the tables to other programs: a PySpark shell, notebooks, a server for assistants."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from twofold.cli.console import out
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument
from twofold.infra.extras import require_extra
from twofold.infra.project.project import project
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.delta.lake import Lake

GREETING = "spark: the session, F: pyspark.sql.functions. Ctrl-D leaves.\nViews: {views}"


def spark(
    url: Annotated[
        bool, typer.Option("--url", help="Only print the connection string, which holds the token.")
    ] = False,
) -> None:
    """Open a PySpark shell on the Spark server, the tables as views; says how a notebook connects.

    With the platform down, or TWOFOLD_SPARK=local, the shell has a JVM of its own, and there is no connection string.
    """
    from twofold.infra.delta.lake import Lake
    from twofold.infra.spark.spark_client import find_endpoint, naming_lost_server, open_session

    settings = Settings.from_environment()
    endpoint = find_endpoint(settings)
    if url:
        if endpoint is None:
            raise BadArgument("There is no Spark server.", hint=f"`{COMMAND} up` starts it.")
        out.print(endpoint, soft_wrap=True, markup=False)
        return
    with naming_lost_server():
        session = open_session(settings, "shell")
        try:
            views = create_views(session, Lake(settings))
            _talk(session, endpoint, views)
        finally:
            session.stop()


def notebook(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A notebook, which need not exist yet; else a list of all is shown."),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the browser; else only print the address.")
    ] = True,
) -> None:
    """Open notebooks over the views for analysts in marimo, on this machine alone, until it is interrupted.

    The address holds a token, without which marimo answers nothing. `notebooks` has an example for each domain.
    """
    require_extra("notebook")
    place = file or project().sources / "notebooks"
    command = [sys.executable, "-m", "marimo", "edit", str(place), "--host", "127.0.0.1"]
    command += ["--no-sandbox", "--skip-update-check", *(() if browser else ("--headless",))]
    os.execv(sys.executable, command)


def mcp() -> None:
    """Serve the tables to an assistant by the Model Context Protocol, on standard input and output; it only reads.

    It has tools for the dictionary of tables, queries, the history of a row, late records, and planned rewrites.
    """
    from twofold.features.analysts.mcp_server import serve

    serve(Settings.from_environment())


def create_views(session: SparkSession, lake: Lake) -> list[str]:
    """Creates a temporary view of each Delta table, named by its bare name if that is unique, else domain_name; sorted.

    Views of events show only records, without the heartbeats of idle topics.
    """
    names = lake.names()
    uses = Counter(name.split(".", 1)[1] for name in names)
    views = []
    for name in names:
        bare = name.split(".", 1)[1]
        view = bare if uses[bare] == 1 else name.replace(".", "_")
        frame = lake.frame(session, name)
        if "_late_by_ms" in [field.name for field in lake.open(name).schema().fields]:
            frame = frame.where("_offset IS NOT NULL")
        frame.createOrReplaceTempView(view)
        views.append(view)
    return sorted(views)


def _talk(session: SparkSession, endpoint: str | None, views: Sequence[str]) -> None:
    import code

    from pyspark.sql import functions as F

    if endpoint is not None:
        out.print("[dim]From a notebook:[/] from pyspark.sql import SparkSession")
        out.print(escape(f'    spark = SparkSession.builder.remote("{endpoint}").getOrCreate()'), soft_wrap=True)
    greeting = GREETING.format(views=", ".join(views) or "none yet")
    code.interact(banner=greeting, local={"spark": session, "F": F}, exitmsg="")
