"""The output that keeps an index of a table's texts for searching."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from twofold.features.search.analyzer import require_language
from twofold.infra.errors import BadArgument
from twofold.infra.extras import require_extra
from twofold.quality.rules import Rule
from twofold.tables.declare.output import Output, is_list


@dataclass(frozen=True, kw_only=True)
class SearchOutput(Output):
    """An index in the home.

    Attributes:
        text: the columns whose words are found; of an index that is only to be erased, any.
        language: of their words, see `features.search.analyzer`; empty: words keep their endings.
    """

    kind: ClassVar[str] = "search"
    opens: ClassVar[str] = "twofold.features.search.search_index:SearchIndex"
    elsewhere: ClassVar[str] = "the index was made again"
    text: Sequence[str] = ("text",)
    language: str = "english"

    def __post_init__(self) -> None:
        require_extra("search")
        super().__post_init__()
        if not is_list(self.text, str):
            raise self.mistake("text", self.text, "a list of columns, each once")
        if self.columns is not None and not set(self.text) <= set(self.columns):
            raise self.mistake("columns", self.columns, "all columns of text= among them")
        try:
            require_language(self.language)
        except BadArgument as error:
            raise self.mistake("language", self.language, f"a language whose stems are known; {error.hint}") from error

    @property
    def reads(self) -> Iterable[str]:
        return [*super().reads, *self.text]

    def unfit(self, columns: Iterable[str]) -> Iterator[str]:
        return (column for column in self.text if column.startswith("_") or not column.isidentifier())


def to_search(
    *,
    text: Sequence[str],
    language: str = "english",
    name: str = "",
    columns: Sequence[str] | None = None,
    where: Sequence[Rule] = (),
    when: Literal["changed", "closed"] = "changed",
    reveal: Sequence[str] = (),
) -> SearchOutput:
    """Keeps an index of texts, which `twofold search` reads: words in the stem of their language, best match first.

    Args:
        text: the columns whose words are found, strings.
        language: whose endings words lose, such as `english`; empty: they keep them. Case and accents never count.
        name: of the index; empty: the table's.
        columns: shown with a match; None: all.
        where: rules that one row decides: the index has the rows that keep all of them.
        when: `changed`: the index has rows as they are now; `closed`: a row is in it once it has closed.
        reveal: columns with values of persons, which the index has decrypted; null once a person is forgotten.

    Raises:
        BadDeclaration: no text, an unknown language, or a condition that one row does not decide.
    """
    return SearchOutput(text=text, language=language, name=name, columns=columns, where=where, when=when, reveal=reveal)
