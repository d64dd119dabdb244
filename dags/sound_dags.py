"""Creates the DAGs of the domains, without domains whose DAGs Airflow cannot store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from airflow.sdk import DAG

from twofold.dags.maintain_dag import maintain_dag
from twofold.dags.operators.closed_days import read_closed_days
from twofold.dags.table_dags import make_dags
from twofold.infra import PACKAGE, PACKAGES
from twofold.infra.airflow.dag_names import MAINTAIN
from twofold.infra.atomic_write import write_atomically
from twofold.infra.errors import BadDeclaration
from twofold.infra.project.project import project
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry, running


class SoundDags(NamedTuple):
    """The DAGs that Airflow can store, and the faults of the other domains."""

    dags: Sequence[DAG]
    faults: Mapping[str, BadDeclaration]


def sound_dags(registry: Registry, settings: Settings, *, only: str | None = None) -> SoundDags:
    """Creates the DAGs of each domain, and that of the home, and checks that Airflow can store them.

    The check takes longest, so it runs once after a file has changed, not each time that Airflow parses.

    Args:
        only: create only the DAG with this id, without a check: Airflow has stored it.
    """
    dags: list[DAG] = []
    faults: dict[str, BadDeclaration] = {}
    kept = settings.home / "run" / "dags.json"
    digest = "" if only else _digest(registry)  # a task that starts need not look at all files
    stored = _stored(kept, digest)
    for domain in registry.domains:
        try:
            made = list(make_dags(registry, domain, read_closed_days(settings, domain), only=only))
            if only is None and domain not in stored:
                for dag in made:
                    require_storable(dag)
        except Exception as error:  # any error of Airflow's own checks: it must not take other domains down
            faults[domain] = BadDeclaration(
                f"{domain}: Airflow cannot load its DAGs: {type(error).__name__}: {error}",
                hint=f"All DAGs of {domain} are left out. Correct the declaration that has this value.",
            )
        else:
            dags += made
    if only in (None, MAINTAIN):
        dags.append(maintain_dag())
    sound = [domain for domain in registry.domains if domain not in faults]
    if only is None and sound != stored:
        with suppress(OSError):  # a home that is read only: it is checked again the next time
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(kept, json.dumps({"digest": digest, "domains": sound}), lasting=False)
    return SoundDags(dags, faults)


def require_storable(dag: DAG) -> None:
    """Refuses a DAG that Airflow's processor cannot serialize, or encode for the process that stores it.

    A value that cannot be encoded ends that process without an import error, and with it every DAG of the file.

    Raises:
        Exception: of any type, from Airflow or the encoder.
    """
    import msgspec
    from airflow.serialization.serialized_objects import DagSerialization

    msgspec.msgpack.Encoder().encode(DagSerialization.to_dict(dag))


def _stored(kept: Path, digest: str) -> list[str]:
    """Returns the domains whose DAGs passed the check with the current files."""
    try:
        document = json.loads(kept.read_text("utf-8"))
        return list(document["domains"]) if document["digest"] == digest else []
    except (OSError, ValueError, KeyError):
        return []


def _digest(registry: Registry) -> str:
    """Hashes the sizes and times of the files from which DAGs are made, and the names of the domains."""
    folders = [project().tables, *PACKAGES, *(PACKAGE / room for room in ("dags", "quality", "tables"))]
    files = sorted({path for folder in folders for path in folder.rglob("*.py")})
    facts = [(str(path), stat.st_size, stat.st_mtime_ns) for path in files for stat in [path.stat()]]
    return hashlib.sha256(repr([registry.domains, facts]).encode()).hexdigest()


if __name__ == "__main__":
    environment = Settings.from_environment()
    faults = sound_dags(running(environment), environment).faults
    print(json.dumps([(domain, fault.message, fault.hint) for domain, fault in faults.items()]))
