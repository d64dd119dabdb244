"""A relay for declarations of a folder, with less patience: `python -m` its name, FOLDER DOMAIN."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

from twofold.features.persons import relay
from twofold.infra.kafka.ordered_copy import OrderedCopy
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load

DIES = "dies-before-it-empties-the-intake"
"""A file in home: the relay kills itself once the topic has records that the intake still has."""


def main() -> None:
    settings, domain = Settings.from_environment(), sys.argv[2]
    relay.IDLE_S, relay.MOST_AT_ONCE = 3.0, 50
    remove = OrderedCopy.remove

    def perhaps_die(*arguments: object) -> None:
        if (settings.home / DIES).exists():
            (settings.home / DIES).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        remove(*arguments)  # type: ignore[arg-type]

    OrderedCopy.remove = perhaps_die  # type: ignore[method-assign,assignment]
    relay.main(settings, relay.relayed_topics(load(Path(sys.argv[1])), domain), domain)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main()
