"""Every error that Twofold raises on purpose, under one root.

TwofoldError
├── BadArgument              an argument, refused before anything was touched
├── BadSetting               an environment variable
├── BadDeclaration           a file under tables/
│   └── Unproved             its function runs, but is not known to give one result
├── MissingTool              Java, a jar, a package: the machine is not set up
├── PortTaken                another process listens on a port of ours
├── ProcessFailed            a supervised process does not run
├── StatementRefused         the captured database refuses a statement
├── CaptureFailed            the capture of a database lost changes, or cannot go on
├── SchemaMismatch           columns of rows and of their table differ
├── DefinitionChanged        rows of two definitions would be in one table
├── PlanVoid                 what a plan was computed from has changed since
├── DamagedLog               a commit of a Delta table is empty or cut off
├── ChangesUnread            commits changed rows that their change feed does not have
├── ChangesGone             what old commits changed was removed, by retention or a VACUUM
├── LogGap                   offsets that should follow each other do not
├── CorruptSegment           an archived segment is not what the broker copied
├── QualityFailed            rows break the rules of their table
├── UnexplainedDifference    the stream and the batch differ and no late record says why
└── TryAgain
    ├── BrokerUnreachable    the Kafka broker does not answer
    ├── DatabaseUnreachable  the captured database does not answer
    ├── ConnectUnreachable   Kafka Connect does not answer
    ├── RegistryUnreachable  the schema registry does not answer, or refuses
    ├── SparkUnreachable     the Spark Connect server does not answer, or ended while a command used it
    ├── WriteConflict        another writer was faster, bounded retries are used up
    ├── ArchiveUnreachable   the storage of archived segments does not answer
    └── NotArchived          offsets that cannot be read yet
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class TwofoldError(Exception):
    """The root: its message says what was expected, what was found and where, then what to do."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __str__(self) -> str:
        return f"{self.message}\nHint: {self.hint}" if self.hint else self.message


class TryAgain(TwofoldError):
    """A failure that another try may heal: a task that ends so is tried again."""

    retryable = True
    exit_code = 75  # EX_TEMPFAIL


class BadArgument(TwofoldError):
    """An argument of a command or a DAG run that cannot be meant."""

    exit_code = 2


class BadSetting(TwofoldError):
    """An environment variable whose value cannot be used."""

    exit_code = 2


class BadDeclaration(TwofoldError):
    """A topic or a table whose file says something that cannot hold."""

    exit_code = 2


class Unproved(BadDeclaration):
    """A table whose function runs, but is not known to give one result; live rows that are accepted go on."""


class MissingTool(TwofoldError):
    """Something that the machine must have and has not."""


class PortTaken(TwofoldError):
    """A port on which Twofold should listen belongs to another process."""


class ProcessFailed(TwofoldError):
    """A process that the supervisor should keep alive does not run."""


class BrokerUnreachable(TryAgain):
    """The Kafka broker does not answer."""


class DatabaseUnreachable(TryAgain):
    """The captured database does not answer."""


class StatementRefused(TwofoldError):
    """A statement that the captured database refuses, or gives up after its time."""


class ConnectUnreachable(TryAgain):
    """Kafka Connect does not answer, or cannot do what is asked yet."""


class CaptureFailed(TwofoldError):
    """The capture of a database lost changes, or cannot go on without losing some."""


class RegistryUnreachable(TryAgain):
    """The schema registry does not answer, or refuses; only records whose schema is no file wait for it."""


class SparkUnreachable(TryAgain):
    """The Spark Connect server does not answer, or ended while a command used it; what was committed is whole."""


class WriteConflict(TryAgain):
    """Other writers were faster until the bounded retries were used up."""


class SchemaMismatch(TwofoldError):
    """The columns of rows and of the table that should take them differ."""


class PlanVoid(TwofoldError):
    """The pins of a plan have moved since it was computed; nothing of it was published."""


class DefinitionChanged(TwofoldError):
    """The rows of a table were computed by another definition than the one that is declared now."""


class DamagedLog(TwofoldError):
    """A commit file of a Delta log that is empty or cut off, as a crash of the machine can leave it."""


class ChangesUnread(TwofoldError):
    """Commits of a table changed rows, by its log, and none of them was read: what depends on them would stay old."""


class ChangesGone(TwofoldError, FileNotFoundError):
    """Commits of a table whose changes cannot be read any more: files of its log or change feed were removed."""


class LogGap(TwofoldError):
    """Offsets between those of a table and the next records are missing."""


class ArchiveUnreachable(TryAgain):
    """The storage that holds archived segments does not answer, or refuses."""


class NotArchived(TryAgain):
    """Offsets beyond the frontier of the archive, or of what was ingested; they come while the log goes on."""


class CorruptSegment(TwofoldError):
    """An archived segment, or one of its indexes, that is not what the broker copied."""


class QualityFailed(TwofoldError):
    """Rows that should be published break the rules of their table."""


class UnexplainedDifference(TwofoldError):
    """Live rows differ from their recomputation and no touched row says why."""


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Returns the hint of an error: the known name nearest to a wrong one, or else this text."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {near[0]!r}?" if near else otherwise
