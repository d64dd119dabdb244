"""Secrets of a home, created on first use in files that only their owner can read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def ensure_secret(path: Path, make: Callable[[], str] = lambda: secrets.token_urlsafe(32)) -> str:
    """Returns the secret in a file, and creates it if missing; processes that do so at once get the same one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.touch(mode=0o600)
        partial.write_text(make())
        try:
            # Unlike a rename, a link does not replace what another process was faster to make.
            os.link(partial, path)
        except FileExistsError:
            pass
        finally:
            partial.unlink()
    return path.read_text()
