"""A stream driver of `flights` without its tables: `python -m tests.chaos.ingest_driver`."""

from __future__ import annotations

from infra.settings import Settings
from streaming.driver import run

if __name__ == "__main__":
    run(Settings.from_environment(), "flights", tables=[])
