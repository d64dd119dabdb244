"""Declarations are found by their folder; a mistake names the file, what was expected and what to do."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.tables.declared import TABLE_FILE, TOPIC_FILE, edited, written
from twofold.infra.errors import BadArgument, BadDeclaration
from twofold.infra.project.chosen_domains import choose_domains
from twofold.infra.project.settings import Settings
from twofold.tables.declare.analysis import whole_scopes
from twofold.tables.declare.registry import Registry, _log_faults, load, running, running_domains


def table_reading(*inputs: str, **parameters: str) -> str:
    """A table's file whose function has these parameters."""
    text = edited(
        edited(TABLE_FILE, "latest(readings)", f"latest({', '.join(inputs)})"), "return readings", f"return {inputs[0]}"
    )
    for name, value in parameters.items():
        text = edited(text, 'recompute_by=["sensor"]', f'recompute_by=["sensor"], {name}={value}')
    return text


def plant(folder: Path, **files: str) -> Path:
    """A folder with the domain `plant`: the topic `readings` and these files."""
    return written(folder, {"plant/readings.py": TOPIC_FILE} | {f"plant/{n}.py": text for n, text in files.items()})


def test_one_file_is_all_that_a_topic_or_a_table_takes(tmp_path: Path) -> None:
    registry = load(plant(tmp_path, newest=TABLE_FILE, __init__='"""The plant."""'))
    assert (registry.domains, list(registry.topics), list(registry.tables)) == (
        ("plant",),
        ["plant.readings"],
        ["plant.newest"],
    )
    table = registry.tables["plant.newest"]
    assert (table.domain, table.name, table.description) == ("plant", "newest", "The newest reading of each sensor.")
    assert registry.upstream(table) == [registry.topics["plant.readings"]]


def test_a_choice_of_domains_has_what_they_read_and_no_more(tmp_path: Path) -> None:
    reading = edited(
        edited(TABLE_FILE, "latest(readings)", "latest(plant__readings)"), "return readings", "return plant__readings"
    )
    every = load(
        written(plant(tmp_path), {"lab/seen.py": reading, "lab/broken.py": "def f(:", "mill/newest.py": reading})
    )
    assert every.restricted_to([]) is every
    lab = every.restricted_to(["lab"])
    assert (lab.domains, list(lab.tables), list(lab.faults)) == (("lab", "plant"), ["lab.seen"], ["lab.broken"])
    assert lab.upstream(lab.tables["lab.seen"]) == [every.topics["plant.readings"]]
    assert every.restricted_to(["plant"]).domains == ("plant",)
    assert lab.removed(["mill.newest", "mill.gone", "lab.seen"]) == ["mill.gone"]
    assert every.restricted_to(["plant", "removed_since"]).domains == ("plant",)


@pytest.mark.parametrize(
    ("file", "text", "message", "hint"),
    [
        ("newest", "def f(:", "newest.py, line 1: ", None),
        (
            "newest",
            edited(TABLE_FILE, '"""The newest reading of each sensor."""\n', ""),
            "has no docstring",
            "first line",
        ),
        ("newest", '"""Nothing."""', "found none", "One file declares one"),
        (
            "newest",
            TABLE_FILE + "\nOTHER = latest",
            r"found latest \(a table\), OTHER \(a table\)",
            "One file declares",
        ),
        ("topic", edited(TOPIC_FILE, "TOPIC =", "TABLE ="), r"found TABLE \(a Topic\)", "One file declares one"),
        ("newest", edited(TABLE_FILE, "key=", "keys="), "@table has no parameter 'primary_keys'", "mean 'primary_key'"),
        (
            "newest",
            edited(TABLE_FILE, "primary_key=", "zebra="),
            "@table has no parameter 'zebra'",
            "It takes primary_key, recompute_by",
        ),
        (
            "topic",
            edited(TOPIC_FILE, "message_key=", 'name="n", message_key='),
            "name is given as a parameter",
            "the name is the file's",
        ),
        ("topic", edited(TOPIC_FILE, "key=", "keys="), "Topic has no parameter 'message_keys'", "mean 'message_key'"),
        (
            "newest",
            edited(TABLE_FILE, 'primary_key=["sensor"], ', ""),
            "@table needs primary_key, which",
            "Write primary_key=",
        ),
        ("newest", edited(TABLE_FILE, "@table(", "@table(freshness='soon', "), "freshness='soon'", "90 seconds"),
        ("newest", edited(TABLE_FILE, "@table(", "@table(approve_above=-1, "), "approve_above=-1", ""),
        (
            "newest",
            edited(TABLE_FILE, 'primary_key=["sensor"]', 'primary_key="sensor"'),
            "primary_key='sensor': expected a list",
            "Write primary_key=",
        ),
        (
            "newest",
            edited(TABLE_FILE, "from twofold", "import delta\nfrom twofold"),
            "imports delta when",
            "`from twofold import",
        ),
        ("topic", edited(TOPIC_FILE, "TOPIC =", "import delta\nTOPIC ="), "line 4 imports delta", "inside the"),
        ("topic", edited(TOPIC_FILE, '"string"', '"strng"'), "sensor has the type 'strng'", "Did you mean 'string'"),
        ("Newest", TABLE_FILE, "'Newest' cannot name a topic or a table", "lower-case"),
        ("readings_quarantine", TOPIC_FILE, "cannot name a topic", "_quarantine is taken"),
        ("newest", table_reading("reading"), "latest reads 'reading': it is no topic", "Did you mean 'readings'"),
        (
            "newest",
            table_reading("zebras"),
            "latest reads 'zebras'",
            "newest, readings; one of another domain",
        ),
        ("newest", table_reading("other__readings"), "latest reads 'other__readings'", "Did you mean 'readings'"),
        (
            "newest",
            edited(TABLE_FILE, 'recompute_by=["sensor"]', 'recompute_by=["kind"]'),
            "recompute_by names kind: latest does not return it",
            "It returns sensor, read_at, value",
        ),
    ],
)
def test_a_mistake_names_its_file_and_what_to_do(
    tmp_path: Path, file: str, text: str, message: str, hint: str | None
) -> None:
    folder = plant(tmp_path, **{file: text})
    with pytest.raises(BadDeclaration, match=message) as error:
        load(folder).require_sound()
    assert str(folder / "plant" / f"{file}.py") in error.value.message
    assert error.value.facts["file"] == str(folder / "plant" / f"{file}.py")
    assert error.value.hint is None if hint is None else hint in str(error.value.hint)


KINDS_FILE = '''\
"""How many sensors had a value on which day."""
from twofold import F, table


@table(primary_key=["day"], {given})
def kinds(readings, newest):
    day = F.to_date("read_at").alias("day")
    return readings.join(newest.select("sensor"), "sensor").groupBy(day).agg(F.countDistinct("sensor").alias("sensors"))
'''


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ('recompute_by=["day"]', ["plant.newest"]),
        ("recompute_by=[]", ["plant.readings", "plant.newest"]),
        # The topic has an event time, the other input has none.
        ('recompute_by=[], event_time="day", depends_within="1 day"', ["plant.newest"]),
    ],
)
def test_a_change_that_nothing_restricts_recomputes_the_whole_table(
    tmp_path: Path, given: str, whole: list[str]
) -> None:
    registry = load(plant(tmp_path, newest=TABLE_FILE, kinds=KINDS_FILE.format(given=given))).require_sound()
    found = whole_scopes(registry, registry.find_table("kinds"), lambda _: ["sensor", "read_at", "value"])
    assert found == whole


@pytest.mark.parametrize("domain", ["ledger", "Plant", "2nd", "my-plant"])
def test_a_folder_that_cannot_name_a_domain_is_refused(tmp_path: Path, domain: str) -> None:
    with pytest.raises(BadDeclaration, match="cannot name a domain"):
        load(written(tmp_path, {f"{domain}/readings.py": TOPIC_FILE})).require_sound()


def test_a_topic_with_a_column_of_that_name_cannot_identify_its_records(tmp_path: Path) -> None:
    asking = edited(TABLE_FILE, "primary_key=", 'lineage_columns=["told_by"], primary_key=')
    asking = edited(asking, "return readings", 'return readings.withColumnRenamed("record", "told_by")')
    plain = plant(tmp_path / "plain", newest=asking)
    assert load(plain).find_table("newest").tolerances == {"told_by": float("inf")}
    taken = plant(tmp_path / "taken", newest=asking, readings=edited(TOPIC_FILE, '"value"', '"record"'))
    with pytest.raises(BadDeclaration, match=r"plant\.readings has a column 'record' of its own"):
        load(taken).require_sound()


def test_a_table_that_reads_tables_cannot_close_rows(tmp_path: Path) -> None:
    closing = edited(
        edited(TABLE_FILE, "readings", "newest"),
        'sequence_by=["read_at"]',
        'event_time="read_at", depends_within="1 hour", closes_at="read_at"',
    )
    with pytest.raises(
        BadDeclaration, match=r"again.py: closes_at of a table that reads tables: their rows can be corrected"
    ):
        load(plant(tmp_path, newest=TABLE_FILE, again=closing)).require_sound()


def test_tables_that_read_each_other_are_named_in_their_circle(tmp_path: Path) -> None:
    folder = plant(tmp_path, a=table_reading("b"), b=table_reading("c"), c=table_reading("a"))
    faults = load(folder).faults
    assert {name: fault.facts["file"] for name, fault in faults.items()} == {
        f"plant.{name}": str(folder / "plant" / f"{name}.py") for name in "abc"
    }
    circle = faults["plant.a"].message.split("in a circle: ")[1].rstrip(".").split(" -> ")
    assert circle[0] == circle[-1]
    assert sorted(circle[1:]) == ["plant.a", "plant.b", "plant.c"]
    with pytest.raises(BadDeclaration, match=r"plant\.own -> plant\.own"):
        load(plant(tmp_path / "other", own=table_reading("own"))).require_sound()


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        (TABLE_FILE, "latest"),
        (edited(TABLE_FILE, '"sensor"], sequence_by=["read_at"],', '"sensor", "read_at"],'), "append"),
        (
            edited(
                TABLE_FILE,
                'sequence_by=["read_at"]',
                'event_time="read_at", depends_within="1 hour", closes_at="read_at"',
            ),
            "stateful",
        ),
        (edited(TABLE_FILE, "recompute_by", 'event_time="read_at", depends_within="1 hour", recompute_by'), "touched"),
        (edited(TABLE_FILE, "readings", "newest"), "touched"),
        (table_reading("readings", "newest"), "touched"),
    ],
)
def test_the_strategy_follows_from_the_declaration(tmp_path: Path, text: str, strategy: str) -> None:
    registry = load(plant(tmp_path, newest=TABLE_FILE, mine=text))
    assert registry.strategy(registry.tables["plant.mine"]) == strategy


def test_tables_come_after_the_tables_that_they_read(tmp_path: Path) -> None:
    files = {"a": table_reading("b", "c"), "b": table_reading("c"), "c": table_reading("readings")}
    registry = load(written(plant(tmp_path, **files), {"shop/d.py": table_reading("plant__a")}))
    assert [t.full_name for t in registry.in_order()] == ["plant.c", "plant.b", "plant.a", "shop.d"]
    assert [t.full_name for t in registry.in_order("shop")] == ["shop.d"]


def test_names_are_found_in_full_and_bare_where_they_are_unique(tmp_path: Path) -> None:
    files = {f"{domain}/readings.py": TOPIC_FILE for domain in ("plant", "shop")}
    registry: Registry = load(written(tmp_path, {**files, "plant/newest.py": TABLE_FILE}))
    assert registry.find_table("newest") is registry.find_table("plant.newest")
    with pytest.raises(BadArgument, match="in more than one domain") as error:
        registry.find_topic("readings")
    assert error.value.hint == "Write plant.readings or shop.readings."
    with pytest.raises(BadArgument, match="There is no table 'newst'") as error:
        registry.find_table("newst")
    assert error.value.hint == "Did you mean 'newest'?"
    with pytest.raises(BadArgument, match="There is no domain 'mill'") as error:
        registry.domain_topics("mill")
    assert error.value.hint == "The domains are plant, shop."


def test_a_fault_leaves_the_other_files_standing(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        {
            "plant/readings.py": TOPIC_FILE,
            "plant/newest.py": table_reading("readings"),
            "plant/oldest.py": table_reading("reading"),
            "shop/readings.py": "TOPIC = (",
            "mill/newest.py": table_reading("shop__readings"),
            "yard/a.py": table_reading("a"),
            "Shed/a.py": TOPIC_FILE,
        },
    )
    registry = load(folder)
    assert [d.full_name for d in registry.declarations] == ["plant.readings", "plant.newest"]
    files = {n: str(Path(str(f.facts["file"])).relative_to(folder)) for n, f in registry.faults.items()}
    assert files == {
        "Shed": "Shed",
        "shop.readings": "shop/readings.py",
        "mill.newest": "mill/newest.py",
        "plant.oldest": "plant/oldest.py",
        "yard.a": "yard/a.py",
    }
    assert [table.full_name for table in registry.chosen([])] == ["plant.newest"]
    assert registry.removed(["plant.newest", "plant.oldest", "shop.readings_quarantine", "plant.gone"]) == [
        "plant.gone"
    ]


def test_asking_for_what_cannot_be_loaded_names_the_file_at_fault(tmp_path: Path) -> None:
    registry = load(
        written(
            tmp_path,
            {
                "plant/readings.py": TOPIC_FILE,
                "plant/first.py": "TABLE = (",
                "plant/newest.py": table_reading("first"),
                "plant/last.py": table_reading("newest"),
                "shop/readings.py": TOPIC_FILE,
                "shop/newest.py": TABLE_FILE,
                "mill/a.py": "TOPIC = (",
            },
        )
    )
    for ask in (lambda: registry.find_table("first"), lambda: registry.find_topic("first")):
        with pytest.raises(BadDeclaration, match=r"plant/first\.py, line 1"):
            ask()
    for name in ("plant.newest", "last"):
        with pytest.raises(BadDeclaration, match=r"it reads plant.*, which cannot be loaded") as error:
            registry.chosen([name])
        assert "plant/first.py, line 1" in str(registry.faults["plant.newest"].hint)
    assert "plant/newest.py: it reads plant.first" in str(error.value.hint)
    with pytest.raises(BadArgument, match="in more than one domain"):
        registry.find_table("newest")
    with pytest.raises(BadDeclaration, match=r"mill/a\.py, line 1"):
        registry.require_domain("mill")
    assert registry.require_domain("shop") == "shop"


def mills(folder: Path) -> Registry:
    """Four domains: `mill` reads `plant`, `shop` is by itself, and nothing of `yard` can be loaded."""
    files = {
        "plant/readings.py": TOPIC_FILE,
        "plant/newest.py": TABLE_FILE,
        "mill/copied.py": table_reading("plant__newest"),
        "mill/again.py": table_reading("copied"),
        "shop/readings.py": TOPIC_FILE,
        "shop/broken.py": "TABLE = (",
        "yard/broken.py": "TABLE = (",
    }
    return load(written(folder, files))


def test_a_chosen_domain_that_cannot_be_loaded_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every, settings = mills(tmp_path / "tables"), Settings(home=tmp_path / "home")
    monkeypatch.setattr("twofold.tables.declare.registry._own", lambda _: every)
    assert running(settings) is every
    assert running_domains(settings) == []
    choose_domains(settings, ["yard", "plant", "gone"])
    assert (running(settings).domains, list(running(settings).faults)) == (("plant",), ["yard.broken"])
    assert running_domains(settings) == ["plant"]
    choose_domains(settings, ["gone", "yard"])
    with pytest.raises(BadArgument, match="runs gone, yard, of which no declaration") as refused:
        running_domains(settings)
    assert "not run: mill, plant, shop" in str(refused.value.hint)


def test_a_process_loads_the_declarations_of_the_platform_once() -> None:
    assert load() is load()


def test_the_declarations_of_the_platform_load() -> None:
    registry = load()
    assert registry.domains
    assert all(d.description for d in [*registry.topics.values(), *registry.tables.values()])


def test_what_is_left_out_is_logged_once_unless_the_caller_lists_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    every = mills(tmp_path / "tables")
    monkeypatch.setattr("twofold.tables.declare.registry._own", lambda _: every)
    monkeypatch.setattr("twofold.tables.declare.registry._log_faults", functools.cache(_log_faults.__wrapped__))

    def logged() -> list[str]:  # clients of a broker that other tests stopped go on logging
        return [one.getMessage().split()[2] for one in caplog.records if one.name.startswith("twofold")]

    load(quietly=True)
    assert logged() == []
    load()
    load()
    assert logged() == ["declaration=shop.broken", "declaration=yard.broken"]
