"""Writes a new project: a topic and a table that run, their tests, and what keeps them right."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from twofold.cli.console import out
from twofold.infra.errors import BadArgument
from twofold.infra.project.home_format import version
from twofold.infra.project.project import FILE

FILES = {
    FILE: """\
# The project. `twofold settings` shows each setting, and where its value comes from: the environment
# (TWOFOLD_KAFKA_PORT=9092), this file, or its default. Secrets are in the environment alone.

[settings]
# kafka_port = 9092
# lake = "s3://bucket/lake"
""",
    "pyproject.toml": """\
[project]
name = "${name}"
version = "0.1.0"
requires-python = ">=3.11,<3.14"
dependencies = ["twofold[${extra}]>=${version}"]

[dependency-groups]
dev = ["pytest"]

[tool.uv]
package = false

[tool.setuptools]
py-modules = []

[tool.pytest.ini_options]
testpaths = ["tests"]
""",
    "tables/cafe/__init__.py": '"""Orders of a café with several shops."""\n',
    "tables/cafe/orders.py": '''\
"""Orders, as the tills of the shops send them.

order_id: of the till
shop: where it was ordered
ordered_at: when, by the clock of the till
amount: in euros
"""

from twofold import Topic, between

TOPIC = Topic(
    schema={"order_id": "string", "shop": "string", "ordered_at": "timestamp", "amount": "double"},
    event_time="ordered_at",
    message_key="shop",
    dedup_keys=["order_id"],
    partitions=1,
    checks=[between("amount", 0, 1_000)],
)
''',
    "tables/cafe/sales_by_hour.py": '''\
"""What each shop sold in each hour."""

from twofold import DataFrame, F, between, not_null, table


@table(watermark="2 hours", checks=[not_null("shop"), between("orders", 1, None)])
def sales_by_hour(orders: DataFrame) -> DataFrame:
    """One row per shop and hour.

    window_start: start of the hour
    window_end: end of the hour
    orders: how many there were
    amount: their sum, in euros
    """
    hours = orders.groupBy("shop", F.window("ordered_at", "1 hour"))
    return hours.agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
''',
    "samples/orders.jsonl": """\
{"order_id": "a1", "shop": "north", "ordered_at": "2026-01-05T09:10:00Z", "amount": 4.5}
{"order_id": "a2", "shop": "north", "ordered_at": "2026-01-05T09:40:00Z", "amount": 3.0}
{"order_id": "a3", "shop": "south", "ordered_at": "2026-01-05T09:50:00Z", "amount": 5.0}
""",
    "tests/test_cafe.py": '''\
"""Sales of the café: rows in, rows out, and that the stream and the batch say the same."""

from pathlib import Path

ORDERS = [
    {"order_id": "a1", "shop": "north", "ordered_at": "2026-01-05T09:10", "amount": 4.5},
    {"order_id": "a2", "shop": "north", "ordered_at": "2026-01-05T09:40", "amount": 3.0},
    {"order_id": "a3", "shop": "south", "ordered_at": "2026-01-05T09:50", "amount": 5.0},
]


def test_orders_of_the_sample_are_events(assert_events):
    sample = Path(__file__).parents[1] / "samples" / "orders.jsonl"
    assert_events("cafe.orders", sample.read_bytes().splitlines())


def test_orders_are_summed_by_shop_and_hour(assert_rows):
    assert_rows(
        "cafe.sales_by_hour",
        orders=ORDERS,
        gives=[
            {"shop": "north", "window_start": "2026-01-05T09:00", "orders": 2, "amount": 7.5},
            {"shop": "south", "window_start": "2026-01-05T09:00", "orders": 1, "amount": 5.0},
        ],
        gives_sql="""
            SELECT shop, time_bucket(INTERVAL 1 hour, ordered_at) AS window_start, count(*) AS orders,
                sum(amount) AS amount
            FROM orders GROUP BY ALL
        """,
    )


def test_the_stream_and_the_batch_agree_after_reconcile(assert_parity):
    """Over made orders, of which some are late, some are sent twice, and some cannot be read."""
    assert_parity("cafe.sales_by_hour")
''',
    "schemas/README.md": """\
# Schemas

Avro and Protobuf schemas that topics name: `<subject>/<id>.avsc` or `.proto`. The number is the id that records carry.
""",
    "dags/README.md": """\
# DAGs of your own

Airflow loads them with those that Twofold makes of the declarations.
""",
    ".gitignore": """\
.twofold/
.venv/
__pycache__/
.pytest_cache/
""",
    ".github/workflows/twofold.yml": """\
name: twofold
on: [push, pull_request]
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
      - uses: actions/setup-java@v4
        with:
          distribution: temurin
          java-version: "17"
      - uses: actions/cache@v4
        with:
          path: ~/.cache/twofold
          key: twofold-$${{ hashFiles('pyproject.toml') }}
      - run: pip install . pytest
      - run: twofold check --strict
      - run: pytest
  plan:
    # With a lake that this machine may read, a pull request shows which rows of live tables it would change.
    if: github.event_name == 'pull_request' && vars.TWOFOLD_LAKE != ''
    runs-on: ubuntu-latest
    permissions:
      contents: read
      pull-requests: write
    env:
      TWOFOLD_LAKE: $${{ vars.TWOFOLD_LAKE }}
      TWOFOLD_SPARK: local
      GH_TOKEN: $${{ github.token }}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
      - run: pip install .
      - run: twofold plan --markdown > plan.md || test $$? -eq 1
      - run: gh pr comment $${{ github.event.number }} --body-file plan.md
""",
    "README.md": """\
# ${name}

A platform of Twofold: a table is one file below `tables`, computed by a stream and by a batch.

```sh
twofold check          # mistakes in declarations
pytest                 # rows in, rows out; stream and batch agree
twofold up             # broker, streams, Spark server, Airflow
twofold send cafe.orders samples/orders.jsonl
twofold sql "SELECT * FROM cafe.sales_by_hour"
twofold down           # data stays
```
""",
}


_SAMPLE = ("tables/", "samples/", "tests/")
"""What of the files is a sample, for who has no declarations yet."""
_SHIPPED = ("algebra", "declare", "flights", "refresh", "shop")
"""What each checkout of before version 0.2 has below its tables."""


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The folder to make; its last part names the project.")],
    adopt: Annotated[
        Path | None,
        typer.Option(metavar="CHECKOUT", help="Take the domains, their tests, schemas and home of this checkout."),
    ] = None,
) -> None:
    """Make a project: a folder with declarations that run, with tests and a CI file, for a repository of its own."""
    folder, domains = write_project(Path(name), _adopted(adopt.expanduser().resolve()) if adopt else None)
    out.print(f"Wrote {folder}, with the domain{'s' * (len(domains) > 1)} {', '.join(domains)}.", soft_wrap=True)
    first = f"cd {name}; twofold check finds mistakes, pytest runs its tests, twofold up starts it"
    out.print(f"[dim]Next:[/] {first}; README.md says what then.", soft_wrap=True)


def write_project(
    folder: Path, own: Mapping[str, str] | None = None, *, extra: str = "platform"
) -> tuple[Path, list[str]]:
    """Writes the files of a new project.

    Args:
        own: path -> text of what it declares, and of what differs; None: a sample.
        extra: of Twofold, which it needs.

    Returns:
        The folder, and its domains.

    Raises:
        BadArgument: there is something in the folder, or its name cannot be that of a project.
    """
    folder = folder.expanduser().resolve()
    if not folder.name.replace("-", "_").isidentifier() or not folder.name.isascii():
        raise BadArgument(f"{folder.name!r} cannot name a project.", hint="Use letters, digits, - and _.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadArgument(f"{folder} exists already, and is not empty.", hint="Choose another name.")
    words = {"name": folder.name, "version": version(), "extra": extra}
    files = {name: Template(text).substitute(words) for name, text in FILES.items()}
    if own is not None:
        files = {**{name: text for name, text in files.items() if not name.startswith(_SAMPLE)}, **own}
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder, sorted({Path(name).parts[1] for name in files if name.startswith("tables/")})


def _adopted(checkout: Path) -> dict[str, str]:
    """Reads the declarations, tests and schemas of the user, with imports of today, and names the home of before.

    Raises:
        BadArgument: the checkout has no domain of the user.
    """
    sources = [checkout, checkout / "demo"]  # the second one since version 0.2
    folders = [folder for source in sources for folder in sorted((source / "tables").glob("[a-z]*"))]
    declared = [file for folder in folders if folder.name not in _SHIPPED for file in sorted(folder.glob("*.py"))]
    if not declared:
        raise BadArgument(
            f"{checkout / 'tables'} has no domain of yours.",
            hint="Name the folder of the checkout into which you put tables.",
        )
    files = {f"tables/{file.parent.name}/{file.name}": file for file in declared}
    tests = [
        checkout / folder / f"test_{file.stem}.py" for file in declared for folder in ("tests/tables", "demo/tests")
    ]
    files |= {f"tests/{file.name}": file for file in tests if file.exists()}
    files |= {str(file.relative_to(source)): file for source in sources for file in (source / "schemas").glob("*/*")}
    own = {name: _IMPORTS.sub(_renamed, file.read_text("utf-8")) for name, file in files.items()}
    if (home := checkout / ".twofold").exists():
        own[FILE] = f"{FILES[FILE]}home = {json.dumps(str(home))}  # with the data of before\n"
    return own


_ROOMS = "infra|quality|tables|streaming|outputs|batch|intake|status|page|analysts|dags|cli|traffic"
_IMPORTS = re.compile(rf"^from (?:(tests\.parity)|(tables)|((?:{_ROOMS})(?:\.\w+)+)) import\b", re.MULTILINE)


def _renamed(found: re.Match[str]) -> str:
    """Returns an import of before version 0.2 by the name of today."""
    room = (found[3] or "").replace("infra.settings", "infra.project.settings")
    return f"from {'twofold.testing' if found[1] else f'twofold.{room}'.rstrip('.')} import"
