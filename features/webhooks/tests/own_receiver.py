"""A receiver for declarations of a folder, with less patience: `python -m` its name, FOLDER."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from twofold.features.webhooks import bounded_http, delivery_log, receiver
from twofold.features.webhooks.webhook_topic import webhook_topics
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load

DIES = "dies-after-the-next-append"
"""A file in home: the receiver kills itself once the log has a delivery, before it answers."""


def main() -> None:
    settings = Settings.from_environment()
    bounded_http.REQUEST_S = 2.0
    answer = delivery_log._succeed

    def perhaps_die(*arguments: object) -> None:
        if (settings.home / DIES).exists():
            (settings.home / DIES).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        answer(*arguments)  # type: ignore[arg-type]

    delivery_log._succeed = perhaps_die
    receiver.main(settings, webhook_topics(load(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
