"""The tables by Flink SQL, in a process and an environment of their own; results as files of JSON lines.

Flink has no Delta sink for this version, and its Parquet format is not among the packages that can be had here.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment

from peers import flink_nexmark
from peers.engine_process import NEXMARK, Task, drain, until_stopped

OPTIONS = {
    "parallelism.default": "2",
    "table.local-time-zone": "UTC",
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.min-pause": "200 ms",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
}

DEPARTURES = """
    flight_id STRING, kind STRING, carrier STRING, flight INT, tail_number STRING, origin STRING, destination STRING,
    scheduled_at TIMESTAMP_LTZ(3), occurred_at TIMESTAMP_LTZ(3), delay_min INT, reported_at TIMESTAMP_LTZ(3),
    seen_at AS PROCTIME(),
    WATERMARK FOR occurred_at AS occurred_at - INTERVAL '2' HOUR
"""
ARRIVALS = """
    flight_id STRING, carrier STRING, destination STRING, arrived_at TIMESTAMP_LTZ(3), delay_min INT,
    air_time_min INT, reported_at TIMESTAMP_LTZ(3),
    seen_at AS PROCTIME(),
    WATERMARK FOR arrived_at AS arrived_at - INTERVAL '2' HOUR
"""
# The first of each record that was sent twice stays. What is first in order of arrival is never revised.
ONCE = """
    CREATE TEMPORARY VIEW {name}_once AS SELECT {columns} FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY {identity} ORDER BY seen_at) AS nth FROM {name}
    ) WHERE nth = 1
"""
DEPARTED = "flight_id, carrier, flight, tail_number, origin, destination, scheduled_at, occurred_at, delay_min, kind"
LANDED = "flight_id, arrived_at, delay_min, air_time_min"

RESULTS = {
    "delays_by_hour": """
        origin STRING, `hour` TIMESTAMP(3), closes_at TIMESTAMP(3), flights BIGINT, mean_delay_min DOUBLE,
        p90_delay_min DOUBLE, late_share DOUBLE
    """,
    "busiest_routes": """
        origin STRING, destination STRING, starts_at TIMESTAMP(3), closes_at TIMESTAMP(3), flights BIGINT,
        flights_per_hour DOUBLE
    """,
    "flights": """
        flight_id STRING, carrier STRING, flight INT, tail_number STRING, origin STRING, destination STRING,
        scheduled_at TIMESTAMP_LTZ(3), departed_at TIMESTAMP_LTZ(3), departure_delay_min INT,
        arrived_at TIMESTAMP_LTZ(3), arrival_delay_min INT, air_time_min INT, outcome STRING,
        expires_at TIMESTAMP_LTZ(3)
    """,
}
QUERIES = {
    "delays_by_hour": """
        SELECT origin, window_start, window_end, COUNT(*), AVG(CAST(delay_min AS DOUBLE)),
            ROUND(PERCENTILE(delay_min, 0.9), 1), AVG(CASE WHEN delay_min > 15 THEN 1e0 ELSE 0e0 END)
        FROM TABLE(TUMBLE(TABLE departures_once, DESCRIPTOR(occurred_at), INTERVAL '1' HOUR))
        WHERE kind = 'departed'
        GROUP BY origin, window_start, window_end
    """,
    "busiest_routes": """
        SELECT origin, destination, window_start, window_end, COUNT(*), CAST(COUNT(*) AS DOUBLE) / 3
        FROM TABLE(HOP(TABLE departures_once, DESCRIPTOR(occurred_at), INTERVAL '1' HOUR, INTERVAL '3' HOUR))
        WHERE kind = 'departed'
        GROUP BY origin, destination, window_start, window_end
    """,
    "flights": """
        SELECT d.flight_id, d.carrier, d.flight, d.tail_number, d.origin, d.destination, d.scheduled_at,
            CAST(d.occurred_at AS TIMESTAMP_LTZ(3)), d.delay_min,
            CAST(a.arrived_at AS TIMESTAMP_LTZ(3)), a.delay_min, a.air_time_min,
            CASE WHEN a.arrived_at IS NULL THEN 'never landed' ELSE 'landed' END,
            d.occurred_at + INTERVAL '24' HOUR  -- a sink takes one event time at most: the casts make plain instants
        FROM (SELECT * FROM departures_once WHERE kind = 'departed') AS d
        LEFT JOIN arrivals_once AS a ON d.flight_id = a.flight_id
            AND a.arrived_at BETWEEN d.occurred_at AND d.occurred_at + INTERVAL '24' HOUR
    """,
}


RESULTS |= flink_nexmark.RESULTS
QUERIES |= flink_nexmark.QUERIES
TOPICS = {
    "departures": (DEPARTURES, DEPARTED, "flight_id, kind, occurred_at"),
    "arrivals": (ARRIVALS, LANDED, "flight_id, arrived_at"),
}
"""Topic -> its columns, those that queries read, and what identifies its records."""


def open_environment(task: Task) -> TableEnvironment:
    """The topics as tables and views; bounded at their ends of now when the task drains."""
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in OPTIONS.items():
        environment.get_config().set(name, value)
    is_nexmark = task.tables[0] in NEXMARK
    domain, topics = ("nexmark", flink_nexmark.TOPICS) if is_nexmark else ("flights", TOPICS)
    for name, (columns, kept, identity) in topics.items():
        options = {
            "connector": "kafka",
            "topic": f"{domain}.{name}",
            "properties.bootstrap.servers": task.bootstrap,
            "properties.group.id": "peers",
            "scan.startup.mode": "earliest-offset",
            "format": "json",
            "json.timestamp-format.standard": "ISO-8601",
            **({"scan.bounded.mode": "latest-offset"} if task.rounds else {}),
        }
        environment.execute_sql(f"CREATE TEMPORARY TABLE {name} ({columns}) WITH ({_listed(options)})")
        environment.execute_sql(ONCE.format(name=name, columns=kept, identity=identity))
    return environment


def start(task: Task, environment: TableEnvironment) -> Any:
    """One job that fills the tables; what is running."""
    statements = environment.create_statement_set()
    for name in task.tables:
        options = {
            "connector": "filesystem",
            "path": (task.home / name).as_uri(),
            "format": "json",
            "json.timestamp-format.standard": "ISO-8601",
            "sink.rolling-policy.rollover-interval": "1 s",
            "sink.rolling-policy.check-interval": "1 s",
        }
        environment.execute_sql(f"CREATE TEMPORARY TABLE {name} ({RESULTS[name]}) WITH ({_listed(options)})")
        statements.add_insert_sql(f"INSERT INTO {name} {QUERIES[name]}")
    result = statements.execute()
    for name in task.tables:
        environment.execute_sql(f"DROP TEMPORARY TABLE {name}")
    return result


def _listed(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def main() -> None:
    task = Task.from_arguments()
    # The interpreter that Flink would start for Python functions, of which there are none here.
    os.environ["PYFLINK_CLIENT_EXECUTABLE"] = sys.executable
    environment = open_environment(task)
    if task.rounds:
        drain(task, lambda: start(task, environment).wait())
        return
    job = start(task, environment).get_job_client()
    until_stopped(lambda: not job.get_job_status().result().is_terminal_state())
    job.cancel().result()


if __name__ == "__main__":
    main()
