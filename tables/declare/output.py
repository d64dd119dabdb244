"""The parameters that all outputs of a table have, and the mistakes in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import ClassVar, Literal

from twofold.infra.errors import BadDeclaration, nearest
from twofold.infra.project.feature import words
from twofold.quality.rules import RECORD_RULES, Rule


@dataclass(frozen=True, kw_only=True)
class Output:
    """A copy of a table that follows it.

    Attributes:
        kind: what holds the copy.
        opens: the class of what holds it: (Lake, Place, Output) -> Target.
        steps: the classes whose `step` its threads repeat: (Lake, Table, Output, StateFile); the first follows a table.
        elsewhere: where values of a forgotten person can still be once the copy is without them.
        shares_names_of_topics: whether its name may not be that of a topic.
        server: the supervised one that holds a copy without a destination, where that is a service for this.
        name: empty: that of the table.
        destination: a name of the file of the setting `destinations`; empty: the place that its kind has by default.
        columns: None: all of the table.
        where: rules; the copy has the rows that keep all of them.
        when: `changed`: rows as they are now; `closed`: those alone that have closed.
        reveal: columns with values of persons that the copy has decrypted, null once a person is forgotten.
        begin: `all`: a new output sends all rows first; `now`: only what changes from then on.
    """

    kind: ClassVar[str]
    opens: ClassVar[str]
    steps: ClassVar[Sequence[str]] = ("twofold.features.outputs.follow.runner:Follower",)
    elsewhere: ClassVar[str]
    shares_names_of_topics: ClassVar[bool] = False
    server: ClassVar[str] = ""
    name: str = ""
    destination: str = ""
    columns: Sequence[str] | None = None
    where: Sequence[Rule] = ()
    when: Literal["changed", "closed"] = "changed"
    reveal: Sequence[str] = ()
    begin: Literal["now", "all"] = "all"

    def __post_init__(self) -> None:
        for parameter, value in (("name", self.name), ("destination", self.destination)):
            if not isinstance(value, str) or (value and not is_name(value)):
                raise self.mistake(parameter, value, "a name of lower-case letters, digits and _, a letter first")
        if self.when not in ("changed", "closed"):
            raise self.mistake("when", self.when, "'changed' or 'closed'")
        if self.columns is not None and not is_list(self.columns, str):
            raise self.mistake("columns", self.columns, "a list of columns, each once")
        if not isinstance(self.where, list | tuple):
            raise self.mistake("where", self.where, "a list of rules")
        for rule in self.where:
            if not isinstance(rule, Rule) or rule.kind not in RECORD_RULES:
                kinds = ", ".join(sorted(RECORD_RULES))
                raise self.mistake("where", str(rule), f"rules that one row decides: {kinds}")
        if self.reveal != () and not is_list(self.reveal, str):
            raise self.mistake("reveal", self.reveal, "a list of columns, each once")
        if self.columns is not None and not set(self.reveal) <= set(self.columns):
            raise self.mistake("columns", self.columns, "all columns of reveal= among them")
        if tested := [column for rule in self.where for column in rule.columns if column in self.reveal]:
            raise self.mistake("reveal", self.reveal, f"columns that where= does not test: {', '.join(tested)} is not")

    @property
    def is_read(self) -> bool:
        """Whether what was sent can be read; else each commit is sent by itself, and what is lost must be asked for."""
        return True

    def name_for(self, table: str) -> str:
        """Returns the name of the copy of a table of this bare name."""
        return self.name or table

    @property
    def reads(self) -> Iterable[str]:
        """The columns that it names; it may read all."""
        return [*(self.columns or ()), *(column for rule in self.where for column in rule.columns), *self.reveal]

    def mistake(self, parameter: str, value: object, expected: str) -> BadDeclaration:
        """Builds the error of a parameter."""
        return BadDeclaration(f"to_{self.kind}({parameter}={value!r}): expected {expected}.")

    def unfit(self, columns: Iterable[str]) -> Iterator[str]:
        """Yields the columns that this kind of copy cannot have."""
        yield from ()


def kinds() -> dict[str, type[Output]]:
    """Maps the kinds of outputs that declarations can name to their classes, those of features among them."""
    for name in words().values():
        resolve_name(name)
    return {kind.kind: kind for kind in Output.__subclasses__()}


def is_name(text: str) -> bool:
    """Whether it is of lower-case letters, digits and _, a letter first."""
    return text.isascii() and text.isidentifier() and text.islower() and text[0] != "_"


def is_list(values: object, kind: type) -> bool:
    """Whether it is a list of values of a kind, at least one, each once."""
    if not isinstance(values, list | tuple) or not values:
        return False
    return all(isinstance(value, kind) for value in values) and len(set(values)) == len(values)


def require_outputs(outputs: object) -> None:
    """Refuses what is no list of outputs.

    Raises:
        BadDeclaration: shows what was found instead.
    """
    found = outputs if isinstance(outputs, list | tuple) else [outputs]
    strange = [one for one in found if not isinstance(one, Output)]
    if strange or found is not outputs:
        shown = (strange or found)[0]
        raise BadDeclaration(f"outputs={shown!r}: expected a list of outputs.", hint="Write outputs=[to_postgres()].")


def output_mistakes(
    outputs: Sequence[Output],
    table: str,
    columns: Sequence[str] | None,
    closes_at: str | None,
    topics: Collection[str] = (),
) -> Iterator[BadDeclaration]:
    """Yields the mistakes that show once the table is known.

    Args:
        columns: of the table; None: not known before it has rows.
        topics: names that declared topics of the domain have.
    """
    names = [output.name_for(table) for output in outputs]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield BadDeclaration(f"two outputs are named {name!r}.", hint="Give each another name=.")
    for output, name in zip(outputs, names, strict=True):
        if name in topics and output.shares_names_of_topics:
            yield BadDeclaration(f"the output {name} is a declared topic.", hint="Give it another name.")
        if output.when == "closed" and closes_at is None:
            yield BadDeclaration(
                f"the output {name} has when='closed', and no row of {table} ever closes.",
                hint="Rows close if the table has closes_at; else leave when= out.",
            )
        if columns is not None:
            yield from _column_mistakes(output, name, columns)


def _column_mistakes(output: Output, name: str, columns: Collection[str]) -> Iterator[BadDeclaration]:
    for column in dict.fromkeys(output.reads):
        if column not in columns:
            hint = nearest(column, columns, f"It has {', '.join(columns)}.")
            yield BadDeclaration(f"the output {name} reads {column}, which the table lacks.", hint=hint)
    for column in output.unfit(output.columns or columns):
        yield BadDeclaration(
            f"the output {name} cannot have the column {column!r}.", hint="Choose the others by columns=[...]."
        )
