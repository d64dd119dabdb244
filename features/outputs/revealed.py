"""Shows values of persons to an output, as long as their keys are there."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.tables.declare.records.cover import Reader, find_cover

if TYPE_CHECKING:
    from twofold.features.outputs.position import Position
    from twofold.infra.project.settings import Settings
    from twofold.tables.declare.output import Output
    from twofold.tables.output_view import Show, View


class Revealed:
    """Values of persons as one step of an output shows them; opens the keys once a view reveals some.

    Args:
        purpose: of the accesses, for their ledger.
        decrypts: else values that can be decrypted stay encrypted, for what decrypts them when it sends them.
    """

    def __init__(self, settings: Settings, purpose: str, *, decrypts: bool = True) -> None:
        self._settings, self._purpose, self._decrypts = settings, purpose, decrypts

    def close(self) -> None:
        """Closes the keys."""
        if "_reader" in self.__dict__:
            self._reader.close()

    def forgotten(self, view: View | Output) -> int:
        """Returns the number of the last end of a key; 0 for what reveals nothing.

        Values of keys that ended until then are not shown from then on.

        Raises:
            BadSetting: this user cannot read the keys.
        """
        return self._reader.last_end() if view.reveal else 0

    def now(self, column: pa.ChunkedArray) -> pa.Array:
        """Shows a column as copies get it: null without the key.

        Raises:
            BadSetting: this user cannot read the keys.
        """
        return self._shown(column, None)

    def at(self, position: Position) -> Show:
        """Returns what shows columns as a copy at a position may have them: encrypted if the key ended since."""
        return partial(self._shown, ended_after=position.forgotten)

    def _shown(self, column: pa.ChunkedArray, ended_after: int | None) -> pa.Array:
        if self._decrypts:
            return self._reader.reveal(column, 0, ended_after)
        texts = column.to_pylist()
        values, _ = self._reader.values(texts, ended_after)
        return pa.array(
            [text if value is not None else None for text, value in zip(texts, values, strict=True)], pa.string()
        )

    @cached_property
    def _reader(self) -> Reader:
        return find_cover().reader(self._settings, self._purpose, of_copy=True)
