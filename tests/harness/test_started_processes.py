"""Which processes are of a run, what they are, and what CPU they took."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

from tests.harness.started_processes import Seen, StartedProcesses, kind_of, processes

BROKER = ["/usr/bin/java", "-Xmx400m", "-cp", "/x/*", "kafka.Kafka", "server.properties"]
SPARK = ["java", "-cp", "/x/org.apache.Y.jar", "org.apache.spark.deploy.SparkSubmit", "--conf", "a.b.C=1"]
POSTGRES = ["/x/bin/postgres", "-D", "/data"]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (BROKER, "brokers Kafka"),
        (SPARK, "JVMs SparkSubmit"),
        (["java", "-cp", "x", "org.apache.kafka.connect.cli.ConnectDistributed", "p"], "JVMs ConnectDistributed"),
        (["java", "-cp", "x", "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"], ""),
        (["java", "-version"], ""),
        (POSTGRES, "PostgreSQLs postgres"),
        (["postgres: checkpointer"], ""),
        (["/x/bin/postgres", "--single"], ""),
        (["python", "-m", "airflow", "dag-processor"], "Airflows airflow"),
        (
            ["python", "-m", "twofold.infra.process.process_reaper", "--", "python", "-m", "airflow", "dag-processor"],
            "",
        ),
        ([], ""),
    ],
)
def test_a_command_says_which_server_it_is(command: list[str], kind: str) -> None:
    assert " ".join(kind_of(command) or ()) == kind


def found(commands: dict[int, Sequence[str]], marked: Sequence[int] = ()) -> StartedProcesses:
    return StartedProcesses(1, lambda pid: pid in marked, lambda pid: commands.get(pid, []))


def test_a_server_is_counted_once_and_again_when_it_is_started_again() -> None:
    all_of = found({2: POSTGRES, 3: POSTGRES, 4: BROKER, 5: BROKER})
    first = [Seen(1, 0, 0.0), Seen(2, 1, 1.0), Seen(3, 2, 1.5), Seen(4, 1, 2.0)]  # 3 is a fork of 2
    all_of.look(first, 2.0)
    all_of.look(first, 3.0)
    all_of.look([*first[:2], Seen(4, 1, 9.0)], 10.0)
    assert all_of.starts == {"PostgreSQLs": 1, "brokers": 2}


def test_a_process_counts_as_what_it_becomes() -> None:
    commands: dict[int, Sequence[str]] = {2: ["bash", "spark-class"]}
    all_of = found(commands)
    all_of.look([Seen(1, 0, 0.0), Seen(2, 1, 1.0)], 1.0)
    commands[2] = SPARK
    all_of.look([Seen(1, 0, 0.0), Seen(2, 1, 1.0)], 2.0)
    assert (all_of.starts, all_of.programs) == ({"JVMs": 1}, {"SparkSubmit": 1})


def test_processes_of_others_are_left_out_and_orphans_of_ours_are_not() -> None:
    all_of = found({7: BROKER, 8: BROKER, 9: BROKER}, marked=[8])
    all_of.look([Seen(1, 0, 0.0, 1.0), Seen(7, 6, 1.0, 100.0), Seen(8, 6, 1.0, 10.0), Seen(9, 8, 2.0, 20.0)], 2.0)
    assert (all_of.starts, all_of.cpu_s.total()) == ({"brokers": 1}, 31.0)


def test_cpu_of_children_counts_once_whether_they_were_seen_or_not() -> None:
    all_of = found({})
    all_of.look([Seen(1, 0, 0.0, 1.0), Seen(2, 1, 1.0, 4.0), Seen(3, 1, 1.0, 8.0)], 2.0)
    assert all_of.cpu_s.total() == 13.0
    # 2 has ended with 5 seconds, and one that was never seen with 2; 3 goes on.
    all_of.look([Seen(1, 0, 0.0, 1.5, 7.0), Seen(3, 1, 1.0, 9.0)], 3.0)
    assert all_of.cpu_s.total() == 1.5 + 4.0 + 3.0 + 9.0


def test_cpu_of_a_family_that_ends_between_two_looks_counts_once() -> None:
    all_of = found({})
    all_of.look([Seen(1, 0, 0.0, 1.0), Seen(2, 1, 1.0, 2.0), Seen(3, 2, 2.0, 60.0)], 3.0)
    all_of.look([Seen(1, 0, 0.0, 1.0, 62.5)], 4.0)
    assert all_of.cpu_s.total() == 1.0 + 62.5


def test_cpu_is_counted_by_supervised_program() -> None:
    reaper = ["python", "-m", "twofold.infra.process.process_reaper", "--command", "/x/commands/broker-7e7ab25f.json"]
    all_of = found({2: reaper, 3: BROKER, 5: SPARK, 6: ["python", "-c", "x"]})
    all_of.look(
        [
            Seen(1, 0, 0.0, 1.0),
            Seen(2, 1, 1.0, 2.0),
            Seen(3, 2, 1.0, 4.0),
            Seen(4, 3, 1.5, 8.0),
            Seen(5, 1, 1.0, 16.0),
            Seen(6, 1, 1.0, 32.0, 64.0),
        ],
        2.0,
    )
    assert all_of.cpu_s == {"broker": 14.0, "SparkSubmit": 16.0, "tests": 97.0}


def test_this_process_and_what_it_starts_are_seen() -> None:
    work = "import time; t = time.process_time\nwhile t() < 0.3: pass\nprint(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        all_of = StartedProcesses(child.pid, lambda _: False, lambda _: [])
        all_of.look(processes(), time.monotonic())
        child.kill()
    assert 0.2 <= all_of.cpu_s.total() < 5.0
