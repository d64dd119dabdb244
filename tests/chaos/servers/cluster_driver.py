"""Works through flights on a Spark cluster, a printed line for each step: `python -m MODULE TABLE...`.

At the end it reconciles, and verifies the whole.
"""

from __future__ import annotations

import sys

from tests.chaos.worker import parts, values
from tests.late_reading import platform
from tests.rewrites import backfill
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.testing.worlds import World

LEGS = 3
"""After three a flight of the first day has closed."""


def main(*tables: str) -> None:
    """Feed a few legs to the tables, then compute all their rows again."""
    settings = Settings.from_environment()
    world = World(session(settings, "cluster"), settings, "flights")
    for number, part in enumerate(parts(LEGS)):
        world.append(values(part))
        print(f"streams {number}", flush=True)
        world.maintain(tables)
    print("backfill", flush=True)
    for name in tables:
        backfill(platform(world), world.registry.find_table(name))
    unexplained = {o.table: o.unexplained for o in world.reconcile(tables, verify=True) if o.unexplained}
    print(f"unexplained {unexplained}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
