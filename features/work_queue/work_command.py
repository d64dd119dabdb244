"""The command that hands the records of a topic to workers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.commands.run_commands import TopicName
from twofold.cli.console import out
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings

LONGEST_NAME = 249  # of a topic, by Kafka


def work(
    topic: TopicName,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="What is run with each record, after --.")
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="A queue of another name gets every record, too.")] = "",
    workers: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="How many records are worked on at once.")
    ] = 1,
    deliveries: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="How often COMMAND gets a record at most.")
    ] = 5,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="COMMAND is killed after this time.")] = "5 minutes",
    status: Annotated[bool, typer.Option("--status", help="Only print how many records are not done.")] = False,
) -> None:
    """Hand the records of TOPIC to N workers: each record to one run of COMMAND, until it is stopped.

    The value is on standard input; RECORD_KEY, RECORD_TOPIC, RECORD_PARTITION, RECORD_OFFSET and RECORD_DELIVERY are in
    the environment. With exit code 0 the record is done, else it is delivered again after a pause, and goes to the
    topic TOPIC.NAME.dead when its deliveries are used up. Each record is done at least once, in no order.
    """
    from twofold.features.work_queue.work_queue import WorkQueue, count, run_below_reaper
    from twofold.infra.duration import parse_duration
    from twofold.infra.kafka.topic_admin import ensure_topics
    from twofold.tables.declare.output import is_name

    if not is_name(name):
        raise BadArgument(
            f"--name={name!r} cannot name a queue.",
            hint="Use lower-case letters, digits and _, beginning with a letter.",
        )
    timeout_s = parse_duration(timeout, "--timeout") / 1000
    if not timeout_s:
        raise BadArgument(f"--timeout={timeout!r}: expected some time for COMMAND.")
    program = [] if status else _program(command or [])
    settings = Settings.from_environment()
    full_name = _topic_on_broker(settings, topic)
    queue = WorkQueue(
        topic=full_name, name=name, command=program, workers=workers, deliveries=deliveries, timeout_s=timeout_s
    )
    dead = queue.dead_letters.name
    if status:
        counts = count(settings, queue)
        out.print(
            f"{counts.waiting:,} records wait, {counts.begun:,} are begun, {counts.dead:,} dead letters in {dead}."
        )
        return
    if len(dead) > LONGEST_NAME:
        raise BadArgument(f"{dead} has more than {LONGEST_NAME} characters.", hint="Choose a shorter --name.")
    ensure_topics(settings, [queue.dead_letters])
    out.print(f"{workers} workers of the group {queue.group}; dead letters go to {dead}. Ctrl-C stops them.")
    if code := run_below_reaper(queue):
        raise typer.Exit(code)


def _program(command: Sequence[str]) -> list[str]:
    """Returns a command with the path of its program; refuses none, and one that is not found."""
    if not command:
        raise BadArgument("No command.", hint=f"{COMMAND} work TOPIC --name NAME -- COMMAND [ARGUMENT]...")
    program = shutil.which(command[0])
    if program is None:
        raise BadArgument(f"{command[0]!r} is no program that can be run.", hint="Is it executable, and on the PATH?")
    return [str(Path(program).absolute()), *command[1:]]


def _topic_on_broker(settings: Settings, name: str) -> str:
    """Returns the full name of a topic that is declared, or that the broker has, such as one of dead letters."""
    from twofold.infra.kafka.topic_admin import ensure_topics, offsets
    from twofold.tables.declare.registry import load
    from twofold.tables.refresh.events.topic_specs import spec

    try:
        declared = load().find_topic(name)
    except BadArgument:
        if not offsets(settings, [name]):
            raise
        return name
    ensure_topics(settings, [spec(declared)])
    return declared.full_name
