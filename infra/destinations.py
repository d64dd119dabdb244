"""Addresses outside of the platform, by name, in a private file."""

from __future__ import annotations

from pathlib import Path

from infra.errors import BadSetting, nearest
from infra.settings import Settings

_SETTING = "TWOFOLD_DESTINATIONS"


def destination(settings: Settings, name: str) -> str:
    """Returns the address of a name in the file of the setting `destinations`.

    Lines are `name = address`; empty ones and those that begin with # have no meaning.

    Raises:
        BadSetting: no file, a file that others can read, a line that is none, or no such name. No address is shown.
    """
    if not settings.destinations:
        raise BadSetting(
            f"{_SETTING} is not set: expected a file with the address of {name!r}.",
            hint=f"Write the line `{name} = ADDRESS` to a file, `chmod 600` it, and set {_SETTING} to its path.",
        )
    file = Path(settings.destinations).expanduser()
    try:
        text, mode = file.read_text("utf-8"), file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(
            f"{_SETTING}={file}: this file cannot be read: {error}.", hint=f"Set {_SETTING} to a file of lines."
        ) from None
    if mode & 0o077:
        raise BadSetting(
            f"{_SETTING}={file}: others can read or write this file, which has secrets.", hint=f"Run chmod 600 {file}."
        )
    addresses: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        known, sign, address = (part.strip() for part in line.partition("="))
        if not line.strip() or known.startswith("#"):
            continue
        if not (known and sign and address) or known in addresses:
            raise BadSetting(
                f"{file}, line {number}: expected `name = address`, each name once.", hint="Correct that line."
            )
        addresses[known] = address
    if name not in addresses:
        names = ", ".join(addresses) or "none"
        raise BadSetting(f"{file} has no destination {name!r}.", hint=nearest(name, addresses, f"It has {names}."))
    return addresses[name]
