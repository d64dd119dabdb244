"""Files that whoever reads them, or is killed while writing them, finds whole."""

from __future__ import annotations

import os
from pathlib import Path


def write_at_once(file: Path, text: str) -> None:
    """Replace a file by one with this text; whoever opens it meanwhile, or after a crash, finds the old or the new."""
    draft = file.with_name(f"{file.name}.{os.getpid()}.draft")
    draft.write_text(text)
    draft.replace(file)
