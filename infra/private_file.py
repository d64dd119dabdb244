"""Files of lines `name = value` that only their owner can read, and the addresses of destinations in one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from twofold.infra.errors import BadSetting, nearest

_SETTING = "TWOFOLD_DESTINATIONS"


class Faults(NamedTuple):
    """The errors of a private file; none shows a value.

    Attributes:
        unreadable: from the reason.
        shared: from the mode of a file that others can read or write.
        malformed: from the number of a line.
    """

    unreadable: Callable[[Exception], BadSetting]
    shared: Callable[[int], BadSetting]
    malformed: Callable[[int], BadSetting]


def private_folder(folder: Path) -> None:
    """Makes a folder that its owner alone can enter, whatever the modes of what is in it; an older one becomes that."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def private_lines(file: Path, faults: Faults) -> Iterator[tuple[int, str, str]]:
    """Yields number, name and value of each line; empty lines and those that begin with # have no meaning.

    Raises:
        BadSetting: one of `faults`.
    """
    try:
        text, mode = file.read_text("utf-8"), file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise faults.unreadable(error) from None
    if mode & 0o077:
        raise faults.shared(mode & 0o777)
    for number, line in enumerate(text.splitlines(), 1):
        name, _, value = (part.strip() for part in line.partition("="))
        if not line.strip() or name.startswith("#"):
            continue
        if not name or not value:
            raise faults.malformed(number)
        yield number, name, value


def destination(place: str, name: str, form: str = "") -> str:
    """Returns the address of a name in the file of destinations.

    Args:
        place: the setting `destinations`: the path of the file; empty: there is none.
        form: how it is written, `kafka://host:port`; empty: as its reader expects.

    Raises:
        BadSetting: no file, a file that others can read, a line that is none, no such name, or another scheme. No
            address is shown.
    """
    if not place:
        raise BadSetting(
            f"{_SETTING} is not set: expected a file with the address of {name!r}.",
            hint=f"Write the line `{name} = ADDRESS` to a file, `chmod 600` it, and set {_SETTING} to its path.",
        )
    file = Path(place).expanduser()
    faults = Faults(
        unreadable=lambda error: BadSetting(
            f"{_SETTING}={file}: this file cannot be read: {error}.", hint=f"Set {_SETTING} to a file of lines."
        ),
        shared=lambda mode: BadSetting(
            f"{_SETTING}={file}: others can read or write this file, which has secrets.", hint=f"Run chmod 600 {file}."
        ),
        malformed=lambda number: BadSetting(
            f"{file}, line {number}: expected `name = address`, each name once.", hint="Correct that line."
        ),
    )
    addresses: dict[str, str] = {}
    for number, known, address in private_lines(file, faults):
        if known in addresses:
            raise faults.malformed(number)
        addresses[known] = address
    if name not in addresses:
        names = ", ".join(addresses) or "none"
        raise BadSetting(f"{file} has no destination {name!r}.", hint=nearest(name, addresses, f"It has {names}."))
    scheme, sign, _ = form.partition("://")
    if not addresses[name].startswith(scheme + sign):
        raise BadSetting(f"{file}: the destination {name!r}: expected {scheme}://...", hint=f"Write it as {form}.")
    return addresses[name]
