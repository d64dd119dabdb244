"""Runs one command of `twofold` as a task; its JSON is the result."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from twofold.dags.operators.managed_subprocess import Ended, ManagedSubprocess
from twofold.infra import COMMAND
from twofold.infra.airflow.airflow_api import Client
from twofold.infra.errors import TwofoldError
from twofold.infra.process.twofold_command import PROGRAM
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context

    Arguments = Sequence[str] | Callable[[Context], Sequence[str]]

TRY_AGAIN = 75


class CommandOperator(BaseOperator):
    """Runs `twofold COMMAND ARGUMENTS --json`; the JSON output is the XCom result.

    Retryable failures (exit code 75, or an unexpected signal) are tried again; any other fails at once with the
    command's own message. No process of the task outlives it.

    Args:
        arguments: a sequence, or a function of the run's context, called when the task runs; a TwofoldError that it
            raises fails the task.
    """

    def __init__(self, *, command: str, arguments: Arguments = (), **settings: Any) -> None:
        super().__init__(**settings)
        self.command = command
        self.arguments = arguments
        self._child: ManagedSubprocess | None = None

    def execute(self, context: Context) -> object:
        return self.run_in(context)

    def run_in(self, context: Context) -> object:
        """Runs the command with the arguments for this run's context; see `run`."""
        try:
            arguments = self.arguments(context) if callable(self.arguments) else self.arguments
        except TwofoldError as error:
            raise AirflowFailException(str(error)) from None
        return self.run([self.command, *arguments, "--json"])

    def run(self, arguments: Sequence[str]) -> object:
        """Runs `twofold ARGUMENTS` for this task and returns its JSON document.

        Raises:
            AirflowException: another attempt can succeed.
            AirflowFailException: no other attempt can.
        """
        self.log.info("%s %s", COMMAND, shlex.join(arguments))
        pid_file = Settings.from_environment().home / "run" / "tasks" / f"{self.dag_id}.{self.task_id}.json"
        child = self._child = ManagedSubprocess(
            [*PROGRAM, *arguments], environment=_environment(os.environ), pid_file=pid_file
        )
        ended = child.run(self.log.info)
        if child.was_stopped:
            raise AirflowException(f"{COMMAND} {arguments[0]} was stopped with its task.")
        return self.judge(arguments[0], ended)

    def judge(self, command: str, ended: Ended) -> object:
        """Returns the result of a command, or raises the Airflow error for its failure."""
        if ended.code:
            fail(f"{COMMAND} {command}", ended)
        return ended.document

    def let_succeed(self, context: Context, tasks: Collection[str], note: str) -> None:
        """Marks downstream tasks as succeeded with a note, without starting them.

        If Airflow's API does not answer, they are started, and find nothing to do.
        """
        if not tasks:
            return
        try:
            Client(Settings.from_environment()).succeed(self.dag_id, context["run_id"], tasks, note)
        except TwofoldError as error:
            self.log.warning("%s", error)

    def on_kill(self) -> None:
        if self._child is not None:
            self._child.stop()


class FanOutOperator(CommandOperator):
    """Runs a command for many tables, and marks the downstream tasks that have nothing to do as succeeded, with a note.

    Starting each of them only to find nothing would cost seconds of CPU each.

    Args:
        telling: returns, from the command's result, the ids of the tasks with work or a report.
        note: the note on tasks with nothing to do.
    """

    def __init__(self, *, telling: Callable[[object], Collection[str]], note: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.telling = telling
        self.note = note

    def execute(self, context: Context) -> object:
        document = self.run_in(context)
        self.let_succeed(context, self.get_flat_relative_ids() - set(self.telling(document)), self.note)
        return document


def fail(command: str, ended: Ended) -> NoReturn:
    """Raises the Airflow error for a failed command: retry, or fail now."""
    if ended.code == TRY_AGAIN:
        raise AirflowException(f"{command} can be tried again: {message(ended)}")
    if ended.code > 128:
        name = signal.Signals(ended.code - 128).name
        raise AirflowException(f"{command} was ended by {name}; when it is SIGKILL, look for a lack of memory.")
    raise AirflowFailException(f"{command} failed (exit code {ended.code}): {message(ended)}")


def message(ended: Ended) -> str:
    """Returns the error and the hint of a command, or its last lines if it printed neither."""
    document = ended.document
    if isinstance(document, Mapping) and "error" in document:
        hint = document.get("hint")
        return f"{document['error']}\nHint: {hint}" if hint else str(document["error"])
    return "\n".join([line for line in ended.stderr if line][-5:]) or "it wrote no message."


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Filters the task's environment: a command needs neither Airflow's database nor its keys."""
    return {name: value for name, value in environment.items() if not name.startswith(("AIRFLOW__", "_AIRFLOW"))}
