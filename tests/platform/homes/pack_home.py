"""Makes a home by the code of this checkout, and packs it: `python -m tests.platform.homes.pack_home NAME`.

Both short demos run in it; that of flights also replays a day, and changes a definition, by plans that are published,
the second of them taken back. Then a day is misread, and the plan that puts it right stays open. It takes ten minutes,
at a place that is the same on every machine, since some files of a home name it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from deltalake import CommitProperties

from tests import ROOT
from tests.platform.homes.packed_home import archive_of, pack
from tests.servers import wait_until
from tests.support.demos import DAYS, command, faults, own_checkout, run_demo, settings_of, short
from twofold.demo.traffic.sources import MISSIONS, SOURCES
from twofold.infra.delta.lake import Lake
from twofold.infra.postgres.database_connection import query
from twofold.infra.project.project import VARIABLE
from twofold.infra.project.settings import Settings
from twofold_algebra.sql.names import DATAFUSION

PLACE = Path(tempfile.gettempdir()).resolve() / "twofold-home"
"""Of the home and of the checkout that makes it."""
MISREAD = "flights"


def make(home: Path) -> Settings:
    """Make the home, and take its platform down.

    Raises:
        AssertionError: a demo or a command has failed; with what it said.
    """
    settings = settings_of(home)
    try:
        for demo in (
            run_demo(settings, "flights", "--days", str(DAYS["flights"]), "--seconds", "10", "--steps", "replay,plan"),
            run_demo(settings, *short("shop")),
        ):
            assert faults(demo) == [], "\n".join(faults(demo))
        _run(settings, "up", *DAYS)
        _misread(settings, SOURCES[MISREAD].DEMO[0])
        _run(settings, "reconcile", MISREAD)
        _run(settings, "replay", MISSIONS[MISREAD].topic, "--preview", "--why", "a day is misread")
        _shorten_log(settings)
    finally:
        command(settings, "down")
    return settings


def _shorten_log(settings: Settings) -> None:
    """Has PostgreSQL need only the newest file of its log, once the captures have read what is before."""
    [[end]] = query(settings, "SELECT pg_switch_wal()")
    wait_until(
        lambda: query(settings, "SELECT bool_and(restart_lsn > %s) FROM pg_replication_slots", [end]) == [(True,)]
    )
    query(settings, "CHECKPOINT")


def _run(settings: Settings, *arguments: str) -> None:
    ran = command(settings, *arguments)
    assert ran.returncode == 0, f"{arguments} ended with {ran.returncode}: {ran.stdout}{ran.stderr}"


def _misread(settings: Settings, day: date) -> None:
    """Has the events of a day say what a faulty decoder would have made of their records."""
    mission, start = MISSIONS[MISREAD], datetime(day.year, day.month, day.day, tzinfo=UTC)
    of_day = [DATAFUSION.literal(at) for at in (start, start + timedelta(days=1))]
    at = DATAFUSION.name(mission.time)
    Lake(settings).open(mission.topic).update(
        updates={mission.column: mission.misread},
        predicate=f"{at} >= {of_day[0]} AND {at} < {of_day[1]} AND {mission.column} IS NOT NULL",
        # The cause by which streams leave a commit to the batch, as they do with a replay.
        commit_properties=CommitProperties(custom_metadata={"userMetadata": json.dumps({"cause": "replay"})}),
    )


def main(name: str) -> None:
    """Make and pack the home, from a copy of this checkout at the place."""
    checkout = PLACE / "checkout"
    if checkout == ROOT:
        make(PLACE / "home")
        return
    own_checkout(checkout)
    python = [str(checkout / ".venv" / "bin" / "python"), "-m", "tests.platform.homes.pack_home", name]
    subprocess.run(python, cwd=checkout, env={**os.environ, VARIABLE: str(checkout)}, check=True)
    pack(Settings(home=PLACE / "home"), archive_of(name))


if __name__ == "__main__":
    main(sys.argv[1])
