"""Runs the streams of a domain by declarations that another folder holds: `... capture_driver FOLDER DOMAIN`."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from twofold.infra.project.settings import Settings
from twofold.streaming import driver
from twofold.tables.declare.registry import load

if __name__ == "__main__":
    folder, domain = sys.argv[1:]
    registry = load(Path(folder))
    with patch.object(driver, "load", lambda: registry):
        driver.run(Settings.from_environment(), domain)
