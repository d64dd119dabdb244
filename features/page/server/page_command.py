"""The command that serves the page without Airflow."""

from __future__ import annotations

from rich.markup import escape

from twofold.cli.console import out
from twofold.infra.project.settings import Settings


def page() -> None:
    """Serve the page on this machine, without Airflow: what needs you, tables, topics; until it is interrupted.

    It only reads, and asks for a user of Airflow and the password.
    """
    from twofold.features.page.server.standalone import PORT, address, serve
    from twofold.infra.airflow.airflow_processes import shown_users
    from twofold.infra.process.server_ports import own_ports

    settings = Settings.from_environment()
    with own_ports(settings, [PORT]) as own:
        out.print(f"{address(own)}  [dim]{'; '.join(map(escape, shown_users(own, False)))}; stop it with Ctrl-C[/]")
        serve(own)
