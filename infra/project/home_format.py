"""The format of a home: a number, which grows when its files are laid out so that an older platform misreads them."""

from __future__ import annotations

from pathlib import Path

from twofold.infra.atomic_write import write_atomically
from twofold.infra.errors import BadSetting

FORMAT = 1


def format_file(home: Path) -> Path:
    """Returns the file with the number; a home without it has the format 1."""
    return home / "format"


def require_known_format(home: Path) -> None:
    """Refuses a home that a newer platform has laid out.

    Raises:
        BadSetting: its number is greater than ours, or is no number.
    """
    file = format_file(home)
    text = file.read_text("utf-8").strip() if file.exists() else str(FORMAT)
    if not text.isdecimal():
        raise BadSetting(f"{file} says {text!r}: expected a whole number.", hint="Put it back from a backup.")
    if int(text) > FORMAT:
        raise BadSetting(
            f"The home {home} has the format {text}; Twofold {version()} knows formats up to {FORMAT}.",
            hint="A newer Twofold has been here: pip install -U twofold",
        )


def keep_format(home: Path) -> None:
    """Writes the number of a home that is made, or that has none yet."""
    file = format_file(home)
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        write_atomically(file, f"{FORMAT}\n")


def version() -> str:
    """Returns the version of Twofold that this process has loaded."""
    from importlib.metadata import version

    return version("twofold")
