"""Writes the pages that are made from the code: `.venv/bin/python -m docs.generate`."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from docs.licences import licences
from tests import ROOT
from twofold.infra.project.feature import words
from twofold.infra.project.project import VARIABLE
from twofold.infra.project.settings import PREFIX, SECRETS, Settings
from twofold_algebra.refusal import Refusal

DOCS = ROOT / "docs"
GENERATED = "Generated from the code by `.venv/bin/python -m docs.generate`; a test holds it current.\n\n"
DECISION = re.compile(r"# (?P<number>\d{4}) (?P<title>.+)\n\nStatus: (?P<status>\w+), (?P<date>[\d-]+)\.\n(?P<rest>.*)")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def arguments_of(documented: Any) -> dict[str, str]:
    """Name -> meaning, of the section `Args:` of a docstring; `a, b: meaning` counts for both."""
    _, _, section = (inspect.getdoc(documented) or "").partition("\nArgs:\n")
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?= {4}\w)", "\n" + section.split("\n\n")[0])[1:]:
        names, _, meaning = entry.partition(":")
        found |= dict.fromkeys((name.strip() for name in names.split(",")), " ".join(meaning.split()))
    return found


def purpose_of(documented: Any) -> str:
    """A docstring without its sections, one line a paragraph."""
    text = re.split(r"\n(?:Args|Raises|Returns|Attributes):\n", inspect.getdoc(documented) or "")[0]
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def declarations() -> str:
    """The parts of a declaration: parameters, rules, and functions for its body."""
    from twofold.quality import rules
    from twofold.tables.declare.table import Parameters, Strategy, Table
    from twofold.tables.declare.topic import DeviceClock, Topic

    parts = [
        "# Declarations\n\n"
        + GENERATED
        + "Pages of their own: [column types](types.md), and [what is refused](refusals.md), "
        "why, and what to write instead.\n"
    ]
    for kind, parameters in ((Topic, Topic), (Table, Parameters), (DeviceClock, DeviceClock)):
        meaning = arguments_of(parameters)
        rows = [
            [f"`{f.name}`", _default(f, inferred=kind is Table), meaning[f.name]]
            for f in fields(parameters)
            if f.name in meaning
        ]
        about = f"## {kind.__name__}\n\n{purpose_of(kind)}"
        parts.append(f"{about}\n\n{table(['parameter', 'default', 'meaning'], rows)}\n")
    parts.append(
        "## Strategies\n\nNot declared: it follows from the declaration "
        "([how](../explanation/strategies.md)); `twofold show TABLE` says which.\n\n"
        + table(["strategy", "how the stream maintains the table"], [[f"`{s}`", s.meaning] for s in Strategy])
        + "\n"
    )
    kinds = [rule.kind for rule in rules.Rule.__subclasses__()]
    rows = []
    for kind_name in kinds:
        make = getattr(rules, kind_name)
        names = ", ".join(str(p).split(":")[0] for p in inspect.signature(make).parameters.values())
        named: dict[str, str] = {}  # meaning -> the arguments that have it
        for name, meaning in arguments_of(make).items():
            named[meaning] = f"{named[meaning]}, `{name}`" if meaning in named else f"`{name}`"
        said = [f"{names_of}: {meaning}" for meaning, names_of in named.items()]
        meaning_of_rule = " ".join([purpose_of(make).replace("\n\n", " "), *said])
        on_topics = "yes" if kind_name in rules.RECORD_RULES else ""
        rows.append([f"`{kind_name}({names})`", meaning_of_rule, on_topics, "yes"])
    parts.append(
        "## Rules\n\n`from twofold import ...`. Null keeps every rule except `not_null`, as with CHECK in SQL; "
        "an empty table keeps all.\n\n" + table(["rule", "kept when", "on topics", "on tables"], rows) + "\n"
    )
    return "\n".join([*parts, *_functions()])


def _functions() -> Iterator[str]:
    """The functions that declarations call: those of the core, and the words of features."""
    from twofold.tables.declare import spark_names
    from twofold.tables.declare.functions import bloom_filters, event_patterns

    for module in (spark_names, event_patterns, bloom_filters):
        functions = [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == module.__name__]
        yield from (_function(function) for function in functions if not function.__name__.startswith("_"))
    yield from map(_function, map(resolve_name, words().values()))


def _default(parameter: Field[object], *, inferred: bool) -> str:
    from twofold.tables.declare.inference import INFERRED

    if inferred and parameter.name in INFERRED:
        return "inferred"
    return "required" if parameter.default is MISSING else f"`{parameter.default!r}`"


def refusals() -> str:
    """Every shape that is refused: why, what to write instead, and examples with their errors."""
    from docs.refused_examples import DECLARED, EXAMPLES, FUNCTION, REFUSALS, errors_of

    parts = [
        f"# Refusals\n\n{GENERATED}A declaration is refused when it is loaded if the stream and the batch could give "
        "different rows, or if a parameter cannot be proved; only Spark knows types, which `twofold check` looks at. "
        "[Declarations](declarations.md) says what each parameter means. Words in capital letters are filled in by "
        "each error. An error that begins with `t` is of a function of that name.\n\nThe examples read these:\n\n"
        + "\n".join(f"```python\n{text}```\n" for text in DECLARED.values())
        + "\nAn example that is one expression is `...` in this table:\n\n"
        + f"```python\n{FUNCTION.format(rows='...')}```\n"
    ]
    for subject, refused in itertools.groupby(REFUSALS, key=lambda one: one.subject):
        chapter = list(refused)
        parts.append(f"## {subject}\n\n{table(['refused', 'why', 'write instead'], map(_refusal, chapter))}\n")
        for one in chapter:
            parts.append(f"### {one.name}\n")
            shown = ""
            for wrong, right in EXAMPLES[one.name]:
                if wrong != shown:
                    errors = "\n".join(map(str, errors_of(one, wrong)))
                    parts.append(f"```python\n{wrong.strip()}\n```\n\n```text\n{errors}\n```\n\nAccepted:\n")
                parts.append(f"```python\n{right.strip()}\n```\n")
                shown = wrong
    return "\n".join(parts)


def _refusal(one: Refusal) -> list[str]:
    capitals = _Capitals()
    why = one.why.format_map(capitals)
    return [
        f"[{one.shape.format_map(capitals)}](#{one.name})",
        f"{why[0].upper()}{why[1:]}.",
        one.instead.format_map(capitals),
    ]


class _Capitals(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name.upper().replace("_", " ")


def _function(function: Callable[..., object]) -> str:
    names = ", ".join(str(p).split(":")[0] for p in inspect.signature(function).parameters.values())
    rows = [[f"`{name}`", meaning] for name, meaning in arguments_of(function).items()]
    arguments = f"\n{table(['argument', 'meaning'], rows)}\n" if rows else ""
    head = f"## {function.__name__}\n\n`{function.__name__}({names})`"
    return f"{head}\n\n{purpose_of(function)}\n{arguments}"


def commands() -> str:
    """Every command with its arguments and options."""
    from typer.main import get_command

    from twofold.cli.__main__ import COMMANDS, app

    known: Mapping[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    panels = {panel: [f.__name__.replace("_", "-") for f in functions] for panel, functions in COMMANDS.items()}
    for name in [name for name in known if name not in {n for ns in panels.values() for n in ns}]:
        panels[str(known[name].rich_help_panel)].append(name)
    parts = [
        "# Commands\n\n" + GENERATED + "`twofold COMMAND --help` prints the same. Exit codes: 0 done, 1 failed for "
        "good, 2 bad argument, setting or declaration, 75 worth another try. With `--json` a command prints one JSON "
        "document. `twofold --debug COMMAND` shows where an error was raised.\n"
    ]
    for panel, names in panels.items():
        parts.append(f"## {panel}\n")
        for name in names:
            members = getattr(known[name], "commands", {})
            if not members or known[name].invoke_without_command:
                parts.append(_command(name, known[name]))
            parts += [_command(f"{name} {m}", c) for m, c in members.items()]
    return "\n".join(parts)


def _command(name: str, command: Any) -> str:
    metavars = [p.metavar or p.name.upper() for p in command.params if not p.opts[0].startswith("-")]
    rows = []
    for parameter in command.params:
        is_option = parameter.opts[0].startswith("-")
        shown = ", ".join(f"`{o}`" for o in (*parameter.opts, *parameter.secondary_opts)) if is_option else ""
        default = parameter.default
        is_shown = default not in (None, False, True, "") and not callable(default)
        text = parameter.help or ""
        rows.append(
            [shown or f"`{parameter.metavar or parameter.name.upper()}`", text, f"`{default}`" if is_shown else ""]
        )
    about = "\n\n".join(" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n"))
    options = f"\n{table(['argument or option', 'meaning', 'default'], rows)}\n" if rows else ""
    return f"### {name}\n\n`twofold {' '.join([name, *metavars])}`\n\n{about}\n{options}"


def settings() -> str:
    """The environment variables."""
    rows = []
    for field in fields(Settings):
        is_home = field.name == "home"
        default = "`.twofold` in the project" if is_home else f"`{field.default}`" if field.default else ""
        secret = " Masked where settings are shown, refused in the file." if field.name in SECRETS else ""
        rows.append([f"`{PREFIX}{field.name.upper()}`", default, f"{field.metadata['doc']}.{secret}"])
    return (
        f"# Settings\n\n{GENERATED}A setting is a variable of the environment, else a line of the project's file: "
        "`TWOFOLD_KAFKA_PORT=9092`, or `kafka_port = 9092` below `[settings]` in `twofold.toml`, below "
        "`[tool.twofold.settings]` in `pyproject.toml`; a port that neither has is kept by the home in `ports.json`. "
        "Each command reads them once; `twofold settings` shows where each value comes from. "
        f"A variable with the prefix `{PREFIX}` that is not here is refused, as is such a line. "
        "In the file, places that are not absolute are below its folder. Change a setting of a running platform with "
        "`twofold down` and `twofold up`.\n\nThe project is the nearest folder, from the working folder upwards, "
        f"that has such a file, or `{VARIABLE}`. JVM jars are in `~/.cache/twofold`, or where the file says: "
        f'`cache = "FOLDER"`, above all tables.\n\n{table(["variable", "default", "meaning"], rows)}\n'
    )


def ledgers() -> str:
    """The columns of ledgers, and those that the platform adds to events and quarantine."""
    from twofold.infra.delta.lake import descriptions_of
    from twofold.status.ledgers import ledger_schemas
    from twofold.tables.declare.metadata_columns import OF_EVENTS, OF_QUARANTINE
    from twofold.tables.declare.topic import Topic
    from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA, events_schema

    any_topic = Topic(schema={"at": "timestamp", "id": "string"}, event_time="at", message_key="id", dedup_keys=["id"])
    added = [field for field in events_schema(any_topic) if field.name.startswith("_")]
    about = 'Ledgers are Delta tables: `twofold sql "FROM ledger.corrections"`.'
    parts = [f"# Ledgers and columns of the platform\n\n{GENERATED}{about}\n"]
    for name, schema in ledger_schemas().items():
        rows, meaning = descriptions_of(schema)
        parts.append(f"## {name}\n\n{rows}\n\n{_columns(schema, meaning)}\n")
    parts.append(f"## Columns of events\n\nAfter the declared fields.\n\n{_columns(added, OF_EVENTS)}\n")
    parts.append(f"## Columns of quarantine\n\n{_columns(QUARANTINE_SCHEMA, OF_QUARANTINE)}\n")
    return "\n".join(parts)


def _columns(schema: Iterable[Any], meaning: Mapping[str, str]) -> str:
    return table(["column", "type", "meaning"], [[f"`{f.name}`", f"{f.type}", meaning[f.name]] for f in schema])


def dags() -> str:
    """Every DAG of a domain: its page in Airflow, its params, its tasks."""
    os.environ.setdefault("AIRFLOW_HOME", tempfile.gettempdir())  # is read at import; nothing is written there
    from twofold.dags.dag_defaults import Domain
    from twofold.dags.dag_docs import KINDS, template
    from twofold.dags.maintain_dag import maintain_dag
    from twofold.dags.table_dags import make_dags
    from twofold.dags.topic_dags import TOPIC_DAGS
    from twofold.infra.airflow.dag_names import FORGET, MAINTAIN
    from twofold.tables.declare.registry import load

    about = (
        "Each domain has these, `forget` if topics have columns of persons, and the home has `maintain`. The text is "
        "what the book icon of a DAG shows in Airflow."
    )
    parts = [f"# DAGs\n\n{GENERATED}{about}\n"]
    registry = load()
    # Of the DAGs that each table has, the one with the most params stands for all.
    of_kind = {dag.dag_id.split(".")[1]: dag for dag in sorted(make_dags(registry, "flights"), key=_params)}
    of_kind[FORGET] = TOPIC_DAGS[FORGET](Domain(name="flights", topics=(), tables=(), registry=registry))
    of_kind[MAINTAIN] = maintain_dag()
    for kind in KINDS:
        dag = of_kind[kind]
        words = {"command": "twofold", "domain": "<domain>", "driver": "stream-<domain>"}
        lines = template(kind).substitute(words, **dict.fromkeys(("tables", "topics", "rules"), ""))
        about = lines.split("\n", 1)[1].strip()
        rows = [_param(name, dag.params.get_param(name)) for name in dag.params]
        params = f"\n{table(['param', 'name', 'default', 'meaning'], rows)}\n" if rows else ""
        name = ".<table>" if dag.dag_id.count(".") > 1 else ""
        head = kind if kind == MAINTAIN else f"<domain>.{kind}{name}"
        parts.append(f"## `{head}`\n\n{re.sub('^## ', '### ', about, flags=re.MULTILINE)}\n{params}")
    return "\n".join(parts)


def symptoms() -> str:
    """Every kind of symptom: how bad it is, what it means, what to do."""
    from twofold.status.symptoms.diagnosis import KINDS
    from twofold.status.symptoms.symptom import SEVERITIES

    names = {"twofold": "twofold", "subject": "NAME", "domain": "DOMAIN"}
    rows = []
    for kind in sorted(KINDS, key=lambda kind: (SEVERITIES.index(kind.severity), kind.name)):
        remedy, command = kind.remedy.format(**names), f"`twofold {kind.command.format(**names)}`"
        meaning = kind.meaning[0].upper() + kind.meaning[1:]
        rows.append([f"`{kind.name}`", kind.severity, meaning, remedy, command, "yes" if kind.watched else ""])
    head = ["symptom", "severity", "what is wrong", "what to do", "command", "fails `<domain>.stream`"]
    return (
        f"# Symptoms\n\n{GENERATED}`twofold status`, the [page](../how-to/look-at-the-page.md), `twofold doctor` and "
        "the watch of each stream show the same symptoms of one snapshot. Each has a kind and a subject, and is the "
        "same one as long as these are, whatever its numbers; `status --json` has them in `symptoms`. The worst "
        "severity is the health of a topic or table. What to do may be said more exactly, in `twofold doctor`.\n\n"
        f"{table(head, rows)}\n"
    )


def _params(dag: Any) -> int:
    return len(dag.params)


def _param(name: str, param: Any) -> list[str]:
    default = "" if not isinstance(param.value, bool | int | str) else f"`{param.value}`"
    return [f"`{name}`", param.schema.get("title", ""), default, param.description or ""]


def decisions(folder: Path = DOCS / "adr") -> str:
    """The index of the decisions."""
    rows, amended = [], dict[str, list[str]]()
    for path in sorted(folder.glob("[0-9]*.md")):
        head = DECISION.match(path.read_text("utf-8"))
        if head is None:
            raise ValueError(f"{path}: expected '# NNNN Title', an empty line, 'Status: accepted, YYYY-MM-DD.'")
        rows.append([head["number"], f"[{head['title']}]({path.name})", head["status"], head["date"]])
        for how, what in re.findall(r"(Amends|Supersedes) (.+?):", head["rest"]):
            for number in re.findall(r"\[(\d{4})\]", what):
                verb = "amended" if how == "Amends" else "superseded"
                amended.setdefault(number, []).append(f"{verb} by [{head['number']}]({path.name})")
        if merged := re.match(r"Contains (\d{4}),", head["rest"]):
            amended.setdefault(head["number"], []).insert(0, f"contains {merged[1]}")
    return (
        "# Decisions\n\n"
        "Why Twofold is built this way. Each page ends with what a change must not break. A new decision takes the\n"
        "next number; `.venv/bin/python -m docs.generate` adds it to this index.\n\n"
        + table(["", "decision", "status", "date", "later"], [[*r, ", ".join(amended.get(r[0], []))] for r in rows])
        + "\n"
    )


def benchmarks() -> str:
    """The last figures of each benchmark, and which claims hold."""
    parts = [
        "# Benchmarks\n\n"
        + GENERATED
        + "`make bench` measures against the obvious alternative in the same run, and keeps "
        "what it found; `.venv/bin/python -m benchmarks --keep` puts it here. All of x86-64 Linux. How figures were "
        "reached is in the [decisions](adr/README.md).\n"
    ]
    for one in json.loads((ROOT / "benchmarks" / "kept_figures.json").read_text("utf-8")):
        path = f"{one['module'].replace('.', '/')}.py"
        about = (ast.get_docstring(ast.parse((ROOT / path).read_text("utf-8"))) or "").partition("\n")[0]
        columns = [
            name for n, name in enumerate(one["columns"], 1) if any(row[n] is not None for row in one["figures"])
        ]
        kept = [n for n, name in enumerate(one["columns"], 1) if name in columns]
        rows = [[row[0], *(_figure(row[n]) for n in kept)] for row in one["figures"]]
        claims = [f"- {'holds' if holds else '**missed**'}: {claim}" for claim, holds in one["claims"].items()]
        parts.append(
            f"## {one['name'].replace('_', ' ').title()}\n\n[{about}](../{path}) {one['at']}, {one['on']}.\n\n"
            + table(["figure", *columns], rows)
            + "\n\n"
            + "\n".join(claims)
            + "\n"
        )
    return "\n".join(parts)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def words_of_features() -> str:
    """The imports of the words that features bring to declarations, for editors and checkers of types."""
    lines = [
        f"from {module} import {name} as {word}"
        for word, place in sorted(words().items(), key=lambda item: item[1])
        for module, _, name in [place.partition(":")]
    ]
    return "# Written by `.venv/bin/python -m docs.generate`.\n" + "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "benchmarks.md": benchmarks,
    "reference/declarations.md": declarations,
    "reference/refusals.md": refusals,
    "reference/commands.md": commands,
    "reference/settings.md": settings,
    "reference/ledgers.md": ledgers,
    "reference/dags.md": dags,
    "reference/symptoms.md": symptoms,
    "reference/licences.md": lambda: f"# Licences\n\n{GENERATED}{licences()}",
    "adr/README.md": decisions,
    "../features/words.pyi": words_of_features,
}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
