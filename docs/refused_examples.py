"""The examples of refusals, read as declarations are: with the errors that their authors see."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from docs.function_examples import FUNCTION_EXAMPLES
from docs.parameter_examples import PARAMETER_EXAMPLES, SEEN
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.declaration_files import mistakes_in
from twofold.tables.declare.refusals import code_mistakes, refused_keys, refused_names, refused_times, refused_types
from twofold.tables.declare.registry import load
from twofold_algebra import plan_mistakes
from twofold_algebra.refusal import RULES, Refusal, Subject

_TOPIC = '''\
"""{description}"""

from twofold import Topic

TOPIC = Topic(
    schema={schema},
    event_time="{event_time}",
    message_key="sensor",
    dedup_keys=["{identity}"],
)
'''
DECLARED = {
    "readings": _TOPIC.format(
        description="Readings of sensors.",
        schema='{"sensor": "string", "read_at": "timestamp", "value": "double?"}',
        event_time="read_at",
        identity="sensor",
    ),
    "alarms": _TOPIC.format(
        description="Alarms of sensors.",
        schema='{"alarm": "string", "sensor": "string", "raised_at": "timestamp"}',
        event_time="raised_at",
        identity="alarm",
    ),
    "logged": _TOPIC.format(
        description="Records of sensors, with the time when they were sent.",
        schema='{"record": "string", "sensor": "string", "logged_at": "timestamp", "sent_at": "timestamp"}',
        event_time="logged_at",
        identity="sensor",
    ),
    "newest": '''\
"""The newest reading of each sensor."""

from twofold import table


@table(primary_key=["sensor"], sequence_by=["read_at"])
def newest(readings):
    return readings
''',
}
FUNCTION = """\
@table(primary_key=["sensor"], recompute_by=[])
def t(readings, newest):
    return {rows}
"""
_HEAD = '"""A table."""\nfrom twofold import F, Window, sql, table\n\n\n'


def _all() -> Iterator[Refusal]:
    for module in (code_mistakes, plan_mistakes, refused_keys, refused_times, refused_types, refused_names):
        yield from (one for one in vars(module).values() if isinstance(one, Refusal))
    yield from RULES


REFUSALS: Sequence[Refusal] = sorted(dict.fromkeys(_all()), key=lambda one: [*Subject].index(one.subject))
EXAMPLES = FUNCTION_EXAMPLES | PARAMETER_EXAMPLES
"""Name of a refusal -> pairs of a declaration that is refused and one written right."""


def errors_of(refusal: Refusal, example: str) -> list[BadDeclaration]:
    """Returns the errors of an example, none if it is accepted; those that Spark's analysis finds of a refused one."""
    if refusal.name in SEEN and example == EXAMPLES[refusal.name][0][0]:
        return [refusal.error(**SEEN[refusal.name])]
    return _read()[example]


@functools.cache
def _read() -> dict[str, list[BadDeclaration]]:
    """Example -> what the registry says of it; all are read as files of one domain."""
    texts = dict.fromkeys(text for pairs in EXAMPLES.values() for pair in pairs for text in pair)
    examples = {f"example_{n}": text for n, text in enumerate(texts)}
    with tempfile.TemporaryDirectory() as folder:
        domain = Path(folder) / "plant"
        domain.mkdir()
        for name, text in DECLARED.items():
            (domain / f"{name}.py").write_text(text, "utf-8")
        for name, text in examples.items():
            declared = text if "def t(" in text else FUNCTION.format(rows=text)
            (domain / f"{name}.py").write_text(_HEAD + declared, "utf-8")
        registry = load(Path(folder))
    faults = {**registry.faults, **registry.unproved}
    wrong = {name: fault.message for name, fault in faults.items() if name.partition(".")[2] not in examples}
    if wrong:
        raise ValueError(f"the examples cannot be read: {wrong}")
    return {
        text: [_without_place(mistake) for mistake in mistakes_in(faults[f"plant.{name}"])]
        if f"plant.{name}" in faults
        else []
        for name, text in examples.items()
    }


def _without_place(mistake: BadDeclaration) -> BadDeclaration:
    return BadDeclaration(mistake.message.partition(".py: ")[2], hint=mistake.hint)
