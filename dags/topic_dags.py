"""Generates the DAGs that work on a range of one topic."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from twofold.dags.dag_defaults import (
    LIGHT,
    SHORT_SPARK,
    SPARK,
    Domain,
    ask_param,
    make_dag,
    next_time,
    plan_and_publication,
)
from twofold.dags.operators.audit_report import TopicAuditOperator, audited_topics
from twofold.dags.operators.command_operator import CommandOperator, FanOutOperator
from twofold.dags.operators.params import (
    INSTANT,
    LONGEST_WAIT_MIN,
    OFFSETS,
    PARTITIONS,
    REF,
    audit_topic_arguments,
    awaited_arguments,
    forget_arguments,
    redrive_arguments,
    replay_arguments,
)
from twofold.dags.operators.plan_approval import PREVIEW, Approval
from twofold.dags.operators.range_sensor import RangeSensor
from twofold.infra.airflow.dag_names import FORGET

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
    with make_dag(domain, "audit_topic", about, schedule=next_time(AUDIT_AT), params=params) as dag:
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


def _forget(domain: Domain) -> DAG:
    about = "Shows what is held of a person, by counts, and destroys the key when another person approves."
    ref = Param(
        title="Ref",
        type="string",
        pattern=f"^{REF}$",
        description="Of the person, as `twofold forget KIND ID --ask` prints it: Airflow keeps no id.",
    )
    with make_dag(domain, FORGET, about, params={"ref": ref}) as dag:
        look = CommandOperator(
            task_id=PREVIEW,
            command="forget",
            arguments=lambda context: [*forget_arguments(context["params"]), "--certificate"],
            **SHORT_SPARK,
            doc_md="Counts the rows that hold values of the person, everywhere.",
        )
        approve = Approval(
            subject=f"Destroy the key of a person ({{{{ ti.xcom_pull(task_ids={PREVIEW!r})['kind'] }}}})?",
            body=f"{{{{ ti.xcom_pull(task_ids={PREVIEW!r})['markdown'] }}}}\n\n"
            "- **Approve**: the key is destroyed at once, which cannot be taken back; outputs lose what they reveal.\n"
            "- **Reject**: nothing is done.",
            response_timeout=timedelta(days=3),
            doc_md="Waits for a person under *Required actions*. Rejected, or not answered in three days: nothing is "
            "done.",
        )
        (
            look
            >> approve
            >> CommandOperator(
                task_id=FORGET,
                command="forget",
                arguments=lambda context: [*forget_arguments(context["params"]), "--now", "--yes"],
                **SHORT_SPARK,
                doc_md="Destroys the key, waits for outputs, returns the certificate; run again it changes nothing.",
            )
        )
    return dag


TOPIC_DAGS = {"replay": _replay, "redrive": _redrive, "audit_topic": _audit_topic, FORGET: _forget}
"""Kind of a DAG -> the function that makes it for a domain with topics."""
