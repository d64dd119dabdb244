"""Writes the documentation of DAGs and tasks for the Airflow UI, from the declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twofold.infra import COMMAND
from twofold.infra.project.chosen_domains import driver_name
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic

LATE = {"correct": "end in corrections", "drop": "are counted and listed, not corrected"}

STREAM = """\
# {domain}: the stream

Every minute: is the broker up, does the stream driver of `{domain}` run, does it make progress? The stream itself runs
under the supervisor; no task of Airflow holds it.

- Broker or driver does not run: it is restarted; the task fails when it does not come back.
- Records wait, and no micro-batch was finished for 5 minutes: the driver is restarted, and the task fails to raise an
  alarm.
- Rows become visible more than 15 minutes after the broker had them, or than a table declares as its `freshness`:
  the task fails.

The asset of each table that the stream has written since the last look gets an event, with its version, its rows, and
the instant before which its rows are closed: a DAG of your own can wait for it.

## When it fails

1. `{command} status` shows processes, lag and freshness; `{command} doctor` whether the machine lacks something.
2. The log of the driver is `.twofold/logs/{driver}.log`, that of the broker `.twofold/logs/broker.log`.
3. **Not supervised**: start the platform with `{command} up`.
4. To keep the stream stopped for a while, pause this DAG first: it would start it again.

{tables}
"""

RECONCILE = """\
# {domain}: reconcile

Every 15 minutes. Finds the records that were too late for the stream, recomputes exactly the rows that they may affect,
and publishes the differences. Each correction is in `ledger.corrections`, with the records that caused it.

`look` finds the tables that have work, from Delta's logs, in a second. The task of each table does its work, after
those of the tables that it reads, so that the graph is the map of the data:

- **success**: its log says which rows were corrected, and by which records; the table's asset gets an event. Or the
  table was right: then it was not even started, and its note says so;
- **failed**: the log says why, and what to do. The tables behind it are reconciled all the same.

`announce` publishes which tables changed, and so starts `{domain}.quality`. Started by hand with **Verify**, `look`
also recomputes every closed row, in one job for all tables, and fails when any differs that no late record explains.

## When it fails

1. `look`, or a table, failed: its last log line says why, and what to do. What a retry can heal was tried three times.
2. A table failed: rows differ that **no late record explains**. They were left unchanged. Find out what
   wrote such a row (`{command} why TABLE key=value`), then start `{domain}.repair`: it overwrites them after your
   approval.
3. A second run changes nothing that is right: clear the task, or start the DAG again, at any time.

{tables}
"""

AUDIT = """\
# {domain}: audit

Every night. Finds damage that no late record announces: a twentieth of the closed rows of each table is recomputed
and compared with the live ones, and every offset that was ingested must be among the events or in quarantine, once.
The share rotates: twenty nights cover every row. Started by hand with **All**, it covers all at once.

`look` does the work; the task of each table, and `log`, report what was found. So the grid shows when a table was last
audited, and its result which share of it.

## When it fails

1. A table failed: **rows differ and nothing touched them**. They were left unchanged. `{command} why TABLE key=value`
   shows what wrote such a row; `{domain}.repair` overwrites them once you approve.
2. `log` failed: **missing or repeated offsets**. Events or quarantine were changed outside the platform.
   `{domain}.replay` decodes their records again.
3. `look` failed: **the definition changed**. The table's backfill with **All rows** accepts it.

{tables}
"""

QUALITY = """\
# {domain}: quality

Starts when `{domain}.reconcile`, a backfill, `{domain}.replay` or `{domain}.redrive` changed tables, and checks those.
Four times a day, and started by hand, it checks all, since streams write rows, too; what a backfill of a day changed
waits for that. Results are kept and shown as Data Docs; the task of each table logs the address of its page.

## When it fails

The table's task names the broken rules, how many rows break them, and one of those rows. Either the data are wrong
(correct the source, then `{domain}.replay`) or the rule is (correct the declaration under `tables/{domain}/`).

{rules}
"""

REPAIR = """\
# {domain}: repair

For rows that **nothing explains**: reconcile names them, fails, and leaves them unchanged. Here a person decides.
`{command} why TABLE key=value` shows what wrote such a row: find out first.

Start it with **Trigger** and a table. `preview` recomputes every closed row; where all are explained, the run ends
there. `approve` shows the rows and waits for you, under *Required actions*. Approved, `publish` overwrites exactly
these rows; the ledgers keep who approved, and each row as it was and as it became, under the cause `repair`.
Rejected, nothing is done.

## When it fails

1. `preview` failed: its last log line says why, and what to do.
2. `approve` failed: no answer within three days. Start the DAG again.
3. `publish` failed: rows or code have changed since they were shown. Find out what writes to the table, then start
   again.

{tables}
"""

REBUILD = """\
# {domain}: rebuild

For a declaration whose **columns** changed, and for any doubt about what is served: the streaming code processes the
whole log, archived or not, into a shadow lake. The live table is served meanwhile.

Start it with **Trigger** and a table. Where the live table equals the result of `preview`, the run ends there.
`approve` shows how they differ and waits for you, under *Required actions*. Approved, `publish` replaces the live rows,
in one commit that `{command} rollback TABLE` undoes. Under a new definition restart the driver afterwards
(`{command} up`), so that its stream loads it.

## When it fails

1. `preview` failed: its last log line says why. Started again, it continues where it was.
2. `approve` failed: no answer within three days. Start the DAG again.
3. `publish` failed: rows or code have changed since they were shown, or a row breaks the table's rules. Nothing was
   published.

{tables}
"""

RECOVER = """\
# {domain}: recover

For a table whose stream cannot continue because its **checkpoint or state** was deleted, cut off or damaged: the
streaming code processes again all that the lost stream had read, to the same point, without writing to the live table.
Its rows must be those of the table. Then the stream continues from the new state, without gap or repetition. The lost
checkpoint is kept as `<name>.lost`.

Start it with **Trigger** and a table. The driver may run: it leaves the table alone meanwhile, and starts its stream
within a minute afterwards.

## When it fails

1. **The stream of the table runs**: it has lost nothing. To make its state again all the same, pause `{domain}.stream`
   and stop the driver (`{command} down`).
2. **What was lost and what the log gives again differ**: the rows are named, and nothing was put in place. The
   events or the table were changed outside the platform. **Differing** accepts the new state all the
   same; `{domain}.reconcile` with **Verify** checks the rows.
3. Anything else: the last log line says why. Nothing was put in place; it can be started again at any time.

{tables}
"""

BACKFILL = """\
# {domain}: backfill of a table

Recomputes a table from its inputs, in a range of time or all of it, and publishes the rows that differ, in one
transaction. Only rows that the stream has closed are touched. Run twice, it changes nothing the second time.

- **A range**: **Trigger**, with a range `[start, end)` of the table's event time.
- **Day by day**: **Trigger**, then *Backfill*: one run for each day, its partition. Or one run with a partition like
  `2013-01-05`. Events of the tables' assets have that partition.
- **All rows** also accepts a changed definition, where the declaration or what its function calls is another than what
  computed the table. Until then its stream, `{domain}.reconcile` and `{domain}.audit` refuse it. The differences are
  recorded under the cause `definition`, and the stream starts with a new checkpoint within a minute. Restart the
  driver before (`{command} up`), so that it loads the new code.

`preview` computes the rows in a copy; where nothing would change, the run ends there. `approve` shows what would
change, in the table and in those below it, and waits for you under *Required actions*; without **Ask first** it does
not. `publish` writes exactly the rows that were shown. Tables whose rows have no time are recomputed as a whole.

## When it fails

Nothing was published: rows are checked before, and published all at once or not at all. **failed (exit code 2)**
means an invalid param. The version before a publication is in the task's result, `version_before`.

{tables}
"""

REPLAY = """\
# {domain}: replay

Decodes a range of a topic's records again with today's code, publishes what differs in its events, and what follows
in the tables below. Use it after a rule, a schema or a function has changed. Run twice, it changes nothing the second
time.

Start it with **Trigger**: a topic, and offsets or times, of all partitions or some. `{command} status` shows the
offsets of every partition. What is archived is read directly, bypassing the broker; with **Archived only**,
nothing else is read.

`range` checks whether the whole range can be read. Where its end was not ingested yet, or with **Archived only** not
archived, it says up to which offset it could, and waits for as many minutes as **Wait** says. Nothing of it is read
before. `preview` decodes in a copy, `approve` shows what would change and waits for you under *Required actions*
(not without **Ask first**), `publish` writes exactly that.

## When it fails

Nothing of the failed step was published. `range` failed: the message names the frontier; start again with an earlier
end or a longer wait. **failed (exit code 2)** means offsets that the topic does not have. A gap in the log (`LogGap`)
means that neither the archive nor the broker has the records any more.

{topics}
"""

REDRIVE = """\
# {domain}: redrive

After a rule or a decoder was corrected: quarantined records are decoded again, from the bytes that quarantine keeps.
Those that pass join the events and every table below; the others stay, with today's reasons. Run twice, it changes
nothing the second time.

Start it with **Trigger**: a topic; a text that one of the reasons contains; offsets or times.
`{command} sql "SELECT reasons, count(*) FROM TOPIC_quarantine GROUP BY ALL"` lists the reasons. `preview` decodes in a
copy, `approve` shows what would change and waits for you under *Required actions* (not without **Ask first**),
`publish` writes exactly that.

## When it fails

Nothing of the failed step was published. **failed (exit code 2)** means offsets that the topic does not have, or an end
before the beginning.

{topics}
"""

AUDIT_TOPIC = """\
# {domain}: audit of topics

Every Sunday, all topics; by hand one of them, or a range of it. Compared block of offsets by block: what is
**archived** with what the **broker** still has on its disk, as raw records; and the log with **events and quarantine**,
decoded again. Every offset must have a record, or a reason why not: a marker of a
transaction, an aborted record, or an acknowledged loss.

`look` does the work, and keeps a certificate of each whole topic that is right (`{command} certify TOPIC` checks it
without the log). The task of each topic says what was found: its records by who has them, and every fault.

## When it fails

1. **archive and broker have other records**: one of the two copies was changed after it was written. Both are read
   without an error, so only this comparison finds it. Restore the segment before the broker deletes its own copy.
2. **events and quarantine are not what the log says**: the code changed, or a write outside the platform.
   `{domain}.replay` decodes the block again and publishes what differs.
3. **no record has the offsets**: where `ledger.gaps` names them, `{command} acknowledge` ends the alarm; others were
   skipped by a reader: a fault of Twofold.
4. `range` failed: the range cannot be read whole yet; the message names up to where it can.

{topics}
"""

FORGET = """\
# {domain}: forget

Destroys the key of one person, of any domain: from then on every value of the person is null, in every table,
version, archive and backup of the lake. `preview` counts what is held where, `approve` shows it and waits for you under
*Required actions*, `forget` destroys the key, waits until outputs have sent null, and returns the certificate, which is
in `ledger.forgotten`, too.

Start it with **Trigger** and the ref that `{command} forget KIND ID --ask` prints. Never enter an id: Airflow keeps
what is entered.

## When it fails

`preview` failed: the store of keys cannot be read, or no person has the ref; nothing was done. `forget` failed: it can
be cleared and run again; `{command} keys` counts who is forgotten. A certificate that says that some of it can still be
read names the output, which `{command} outputs` shows; run the task again once that has gone on.

{topics}
"""

PAGES = {
    "stream": STREAM,
    "reconcile": RECONCILE,
    "repair": REPAIR,
    "rebuild": REBUILD,
    "recover": RECOVER,
    "audit": AUDIT,
    "quality": QUALITY,
    "backfill": BACKFILL,
    "replay": REPLAY,
    "redrive": REDRIVE,
    "audit_topic": AUDIT_TOPIC,
    "forget": FORGET,
}


def dag_page(kind: str, domain: str, tables: Sequence[Table], topics: Sequence[Topic], registry: Registry) -> str:
    """Writes the page of a DAG: its purpose, its tables, and the steps after a failure."""
    return PAGES[kind].format(
        command=COMMAND,
        domain=domain,
        driver=driver_name(domain),
        tables="## Tables\n\n" + _tables(tables, registry),
        topics="## Topics\n\n" + _topics(topics),
        rules="## Rules\n\n" + "\n".join(f"{rules(table)}\n" for table in tables),
    )


def table_task(table: Table, descriptions: Mapping[str, str]) -> str:
    """Writes the page of one table's task in reconcile."""
    late = LATE[table.late]
    facts = [f"Key: {_names(table.primary_key)}. Late records {late}."]
    facts += [f"Owner: {table.owner}."] if table.owner else []
    facts += [f"Fresh within {table.freshness}."] if table.freshness else []
    columns = "\n".join(f"- `{column}`: {text}" for column, text in descriptions.items())
    return "\n\n".join(
        [f"**{table.full_name}**: {table.description}", " ".join(facts), *([columns] if columns else [])]
    )


def rules(table: Table) -> str:
    """Writes the page of one table's task in quality."""
    listed = "\n".join(f"- `{rule}`" for rule in table.checks) or "No rules are declared."
    return f"**{table.full_name}**\n\n{listed}"


def _tables(tables: Sequence[Table], registry: Registry) -> str:
    lines = []
    for table in tables:
        reads = _names([declaration.full_name for declaration in registry.upstream(table)])
        keeps = registry.strategy(table).meaning
        lines.append(
            f"- **{table.full_name}**: {table.description} Reads {reads}; key {_names(table.primary_key)}; {keeps}."
        )
    return "\n".join(lines)


def _topics(topics: Sequence[Topic]) -> str:
    lines = []
    for topic in topics:
        partitions = f"{topic.partitions} partition{'' if topic.partitions == 1 else 's'}"
        lines.append(f"- **{topic.full_name}**: {topic.description} {partitions}; event time `{topic.event_time}`.")
    return "\n".join(lines)


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
