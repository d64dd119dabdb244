"""A copy of a table in an index of its texts, which finds rows by their words."""

from __future__ import annotations

import json
import re
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from twofold.features.outputs.json_rows import Row, json_rows, rows_of_page
from twofold.features.outputs.output_target import Target
from twofold.features.outputs.position import Position
from twofold.features.outputs.refused_rows import Refused, record_refused
from twofold.features.outputs.revealed import Revealed
from twofold.features.outputs.revealed_places import Place
from twofold.features.search.analyzer import analyzer
from twofold.features.search.search_output import SearchOutput
from twofold.infra import COMMAND
from twofold.infra.atomic_write import write_atomically
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument, SchemaMismatch, TryAgain, WriteConflict
from twofold.infra.private_file import private_folder
from twofold.infra.process.file_locks import exclusive
from twofold.tables.declare.code_fingerprint import digest
from twofold.tables.declare.records.cover import find_cover
from twofold.tables.output_view import KEY, View
from twofold.tables.refresh.json_values import to_json

if TYPE_CHECKING:
    from tantivy import Document, Index, Searcher

_ROW, _WORDS, _STATE = "_row", "words", "position.json"
_HEAP_BYTES = 15_000_000  # the least that a thread of tantivy's takes


@dataclass(frozen=True, kw_only=True)
class Match:
    """A row that a search has found.

    Attributes:
        score: how well it matches, by BM25: more is better.
        row: its columns, as `to_plain_json` writes values.
    """

    score: float
    row: dict[str, Any]


class SearchIndex(Target):
    """A target in a folder of the home; each row is a document of its words and, unsearched, of its values.

    An index of other columns or another language is made next to the one before, which is searched until it is whole.
    So is one after persons were forgotten whose values it reveals, since what tantivy replaces stays in its files: the
    one before is searched without its revealed columns. One in the making becomes whole though persons are forgotten.

    Attributes:
        folder: has an index for each text and language.
    """

    def __init__(self, lake: Lake, place: Place, output: SearchOutput) -> None:
        self._lake, self._place, self._output = lake, place, output
        self.folder = lake.settings.home / "search" / f"{place.table}.{place.output}"

    @property
    def place(self) -> Path:
        """The folder of the index with these texts: the one in the making, else the one without what is forgotten."""
        begun = [p for p in _indexes(self.folder) if self._is_alike(p) and (at := _position(p)) and at.heading]
        if begun or not self._output.reveal:
            return begun[0] if begun else self.folder / self._kind
        with closing(Revealed(self._lake.settings, "")) as revealed:
            return self.folder / f"{self._kind}.{revealed.forgotten(self._output)}"

    @property
    def _kind(self) -> str:
        kind = digest([*self._output.text, self._output.language])[:12]
        return f"{kind}.{digest(sorted(self._output.reveal))[:6]}" if self._output.reveal else kind

    def _is_alike(self, place: Path) -> bool:
        """Whether an index has these texts and reveals these columns, at whatever end of keys."""
        return (place.name.rpartition(".")[0] if self._output.reveal else place.name) == self._kind

    @property
    def has_another(self) -> bool:
        return any(place != self.place for place in _indexes(self.folder))

    def position(self) -> Position | None:
        return _position(self.place)

    def send(self, changes: pa.Table, before: Position | None, after: Position) -> None:
        private_folder(self.folder.parent)
        private_folder(self.folder)
        place = self.place
        with exclusive(self.folder / "lock", patience_s=1.0) as ours:
            if not ours or _position(place) != before:
                raise WriteConflict(
                    f"Another process has moved the index {self.folder.name}.", hint="It is read again."
                )
            if before is None:
                shutil.rmtree(place, ignore_errors=True)
            elif len(changes):
                self._note(place, before.between())
            refused = self._change(place, changes) if len(changes) or before is None else []
            if refused:
                record_refused(self._lake, self._place, after.ahead.version, refused)
            for other in _indexes(self.folder) if after.heading is None else ():
                if other != place:
                    shutil.rmtree(other)
            self._note(place, after)

    def erase(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _note(self, place: Path, position: Position) -> None:
        facts = {"text": list(self._output.text), "language": self._output.language, "position": position.text}
        write_atomically(place / _STATE, json.dumps(facts))

    def _change(self, place: Path, changes: pa.Table) -> list[Refused]:
        """Replaces the documents of changed keys."""
        if strange := [name for name in self._output.text if not pa.types.is_string(changes.schema.field(name).type)]:
            raise SchemaMismatch(f"The text of an index has to be strings: {', '.join(strange)} is none.")
        refused: list[Refused] = []
        writer = _opened(place, self._output.text, self._output.language).writer(_HEAP_BYTES, 1)
        for key, row in json_rows(changes, refused):
            writer.delete_documents_by_term(KEY, key)
            if row is not None:
                writer.add_document(self._document(row))
        writer.commit()
        writer.wait_merging_threads()
        return refused

    def _document(self, row: Row) -> Document:
        from tantivy import Document

        document = Document()
        document.add_text(KEY, row[KEY])
        for name in self._output.text:
            if row[name] is not None:
                document.add_text(name, unicodedata.normalize("NFC", row[name]))
        document.add_bytes(_ROW, to_json(row).encode())
        return document

    def sent(self, schema: pa.Schema, page: int, pages: int) -> pa.Table:
        return rows_of_page(self._stored(), schema, page, pages)

    def _stored(self) -> Iterator[Row]:
        from tantivy import Query

        searcher = _opened(self.place, self._output.text, self._output.language).searcher()
        if searcher.num_docs:
            for _, address in searcher.search(Query.all_query(), searcher.num_docs).hits:
                yield _row(searcher, address)

    def find(self, words: str, limit: int) -> list[Match]:
        """Finds the rows with all of these words, best match first.

        Args:
            words: in tantivy's language: words, `"a phrase"`, `-without`, `column:word`, `(one OR another)`.

        Raises:
            TryAgain: no index is whole yet, or only one that has what is forgotten in the columns that are searched.
            BadArgument: the words are no query.
        """
        whole = {place: at for place in _indexes(self.folder) if (at := _position(place)) and not at.heading}
        hint = f"`{COMMAND} outputs` shows how far it is."
        if not whole:
            raise TryAgain(f"The index {self.folder.name} is not whole yet.", hint=hint)
        chosen = max(whole, key=lambda place: (self._is_alike(place), whole[place].forgotten))
        facts = json.loads((chosen / _STATE).read_text())
        hidden = self._hidden(whole[chosen])
        text = [column for column in facts["text"] if column not in hidden]
        if not text or any(re.search(rf"\b{re.escape(column)}\s*:", words) for column in hidden):
            raise TryAgain(f"{self.folder.name}: {', '.join(sorted(hidden))} cannot be searched now.", hint=hint)
        index = _opened(chosen, facts["text"], facts["language"])
        try:
            query = index.parse_query(unicodedata.normalize("NFC", words), text, conjunction_by_default=True)
        except ValueError as error:
            raise BadArgument(
                f"{words!r} cannot be searched: {error}.",
                hint='Write words, "a phrase", -without, column:word or (one OR another); quote other signs.',
            ) from error
        searcher = index.searcher()
        left_out = {KEY, *hidden}
        return [
            Match(score=score, row={c: value for c, value in _row(searcher, address).items() if c not in left_out})
            for score, address in searcher.search(query, limit).hits
        ]

    def _hidden(self, at: Position) -> set[str]:
        """Returns the columns of an index that have values of who is forgotten, or are revealed no more."""
        revealed = set(View.parsed(at.definition).reveal)
        is_behind = bool(revealed) and at.forgotten < find_cover().last_end(self._lake.settings)
        return revealed if is_behind else revealed - {*self._output.reveal}


def _row(searcher: Searcher, address: Any) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(bytes(searcher.doc(address)[_ROW][0]))
    return row


def _opened(place: Path, text: Sequence[str], language: str) -> Index:
    from tantivy import Index, SchemaBuilder

    schema = SchemaBuilder().add_text_field(KEY, tokenizer_name="raw").add_bytes_field(_ROW, stored=True, indexed=False)
    for name in text:
        schema = schema.add_text_field(name, tokenizer_name=_WORDS)
    place.mkdir(parents=True, exist_ok=True)
    index = Index(schema.build(), path=str(place))
    index.register_tokenizer(_WORDS, analyzer(language))
    return index


def _indexes(folder: Path) -> list[Path]:
    return [place for place in folder.glob("*") if place.is_dir()]


def _position(place: Path) -> Position | None:
    file = place / _STATE
    return Position.parsed(json.loads(file.read_text())["position"]) if file.exists() else None
