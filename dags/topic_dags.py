"""Generates the DAGs that work on a range of one topic."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from dags.dag_defaults import LIGHT, SPARK, Domain, ask_param, make_dag, plan_and_publication
from dags.operators.audit_report import TopicAuditOperator, audited_topics
from dags.operators.command_operator import FanOutOperator
from dags.operators.params import (
    INSTANT,
    LONGEST_WAIT_MIN,
    OFFSETS,
    PARTITIONS,
    audit_topic_arguments,
    awaited_arguments,
    redrive_arguments,
    replay_arguments,
)
from dags.operators.range_sensor import RangeSensor

# An audit decodes the whole topic, so it does not run every night.
AUDIT_AT = "40 4 * * 0"


def _replay(domain: Domain) -> DAG:
    params = {
        "topic": _topic(domain),
        **_range(),
        "archived": Param(False, title="Archived only", type="boolean", description="Read nothing through the broker."),
        "wait_min": _wait(),
        **ask_param(),
    }
    about = "Decodes a range of a topic again with today's code, publishes the differences in it and below it."
    with make_dag(domain, "replay", about, params=params) as dag:
        _sensor(domain) >> plan_and_publication(
            domain,
            "replay",
            lambda context: [*replay_arguments(context["params"], domain.topic_names), "--preview"],
            "Records of the range are decoded again in a copy; tables below follow where events changed.",
        )
    return dag


def _redrive(domain: Domain) -> DAG:
    params = {
        "topic": _topic(domain),
        "reason": Param(
            None,
            title="Reason",
            type=["null", "string"],
            description="Only records with a reason that contains this text. Empty: all.",
        ),
        **_range(),
        **ask_param(),
    }
    about = "Tries quarantined records again with today's code; those that pass join the events and what is below."
    with make_dag(domain, "redrive", about, params=params) as dag:
        plan_and_publication(
            domain,
            "redrive",
            lambda context: [*redrive_arguments(context["params"], domain.topic_names), "--preview"],
            "Records that still fail stay in quarantine, with today's reasons.",
        )
    return dag


def _audit_topic(domain: Domain) -> DAG:
    everything: dict[str, Any] = {"enum": [None, *domain.topic_names], "type": ["null", "string"]}
    params = {
        "topic": Param(None, title="Topic", description="Empty: all, each as a whole.", **everything),
        **_range(),
        "wait_min": _wait(),
    }
    about = "Holds the archive, the broker, and events with quarantine against each other, record by record."
    with make_dag(domain, "audit_topic", about, schedule=AUDIT_AT, params=params) as dag:
        look = FanOutOperator(
            task_id="look",
            command="audit",
            telling=audited_topics,
            note="Not audited: the run was about another topic.",
            arguments=lambda context: audit_topic_arguments(context["params"], domain.topic_names),
            **SPARK,
            doc_md="One Spark job for all topics; it repairs nothing. The tasks behind it say what was found.",
        )
        _sensor(domain) >> look
        for topic in domain.topics:
            look >> TopicAuditOperator(
                task_id=topic.full_name,
                source="look",
                of=topic.full_name,
                doc_md=f"**{topic.full_name}**: fails where copies of the log differ, or records are missing.",
                **LIGHT,
            )
    return dag


def _topic(domain: Domain) -> Param:
    return Param(title="Topic", enum=domain.topic_names, type="string")


def _range() -> dict[str, Param]:
    """Returns the params that select records of a topic."""
    offsets: dict[str, Any] = {"type": ["null", "string"], "pattern": f"^({OFFSETS}|{INSTANT})?$"}
    numbers: dict[str, Any] = {"type": ["null", "string"], "pattern": f"^({PARTITIONS})?$"}
    form = (
        "One offset for every partition, as 1200; partition:offset pairs, as 0:1200,2:80; or when the broker got the "
        "records, as 2013-01-05T00:00:00Z."
    )
    return {
        "from_offsets": Param(
            None, title="From", description=f"Where the range begins. {form} Empty: the earliest.", **offsets
        ),
        "to_offsets": Param(
            None,
            title="To",
            description=f"Where it ends, itself not part of it. {form} Empty: what was ingested.",
            **offsets,
        ),
        "partitions": Param(
            None, title="Partitions", description="Only these, as 0,2. Empty: all that From names.", **numbers
        ),
    }


def _wait() -> Param:
    return Param(
        0,
        title="Wait",
        type="integer",
        minimum=0,
        maximum=LONGEST_WAIT_MIN,
        description="How many minutes to wait until the range can be read whole. 0: fail at once, and say how far it "
        "can be read.",
    )


def _sensor(domain: Domain) -> RangeSensor:
    return RangeSensor(
        task_id="range",
        arguments=lambda context: awaited_arguments(context["params"], domain.topic_names),
        execution_timeout=timedelta(minutes=2),
        doc_md="Waits until the whole range can be read. No slot is held between two looks.",
    )


TOPIC_DAGS = {"replay": _replay, "redrive": _redrive, "audit_topic": _audit_topic}
"""Kind of a DAG -> the function that makes it for a domain with topics."""
