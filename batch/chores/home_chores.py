"""Chores of a home: what ended, killed and removed work has left in it, outside of the lake."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from twofold.batch.chores.doomed import MONTH, Doomed, measured, old, old_files, together
from twofold.batch.plan.plan import Plans
from twofold.batch.plan.platform_copy import LONGEST
from twofold.infra.airflow import airflow_processes
from twofold.infra.atomic_write import remove_folder
from twofold.infra.delta.lake import Lake
from twofold.infra.process import supervisord
from twofold.infra.process.file_locks import exclusive, is_held
from twofold.infra.process.process_reaper import tagged_processes
from twofold.infra.project.project import other_caches
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.shadow_lake import rebuild_lock

_DAY = timedelta(days=1)
_SHADOW = timedelta(days=7)
_CLASSES = timedelta(days=90)
_WRITTEN = ("checkpoints", "outputs", "plans", "progress", "quality", "run", "supervisor")
"""Folders with files that are replaced as a whole, by a draft."""
_OF_SPARK = {"token", "warmed"}


def checkpoints(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds checkpoints that were set aside, and those of tables that no file declares any more.

    After days without a stream the inputs of such a table have lost what the checkpoint would go on from.
    """
    root, home = lake.settings.checkpoints, lake.settings.home
    folders = [path for path in root.glob("*/*") if path.is_dir()]
    yield from old((path for path in folders if "." in path.name), now - MONTH, "set aside a month ago", below=home)
    names = {(path.parent, path.name.partition(".")[0]) for path in root.glob("*/*")}
    for folder, name in sorted(names) if not registry.faults else ():
        table = f"{folder.name}.{name}"
        if name != "ingest" and table not in registry.tables and not is_held(lake.settings.stream_lock(table)):
            paths = [path for path in sorted(folder.glob(f"{name}*")) if path.name.partition(".")[0] == name]
            yield from together(paths, now - MONTH, "no file declares the table", f"checkpoints/{folder.name}/{name}")


def shadows(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds shadows of rebuilds and recoveries that did not go on."""
    home = lake.settings.home
    for path in sorted([*home.glob("shadow/*"), *home.glob("recovery/*")]):
        for doomed in old([path], now - _SHADOW, "the rebuild was not continued", below=home):
            lock = rebuild_lock(lake.settings, path.name)
            yield Doomed(what=doomed.what, bytes=doomed.bytes, why=doomed.why, remove=partial(_remove, path, lock))


def _remove(shadow: Path, lock: Path) -> None:
    with exclusive(lock) as is_ours:
        if is_ours:
            remove_folder(shadow)


def plans(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds plans that can neither be published nor taken back, and drafts of killed ones."""
    kept = Plans(lake.settings)
    for plan in kept.old(now):
        freed, _ = measured(kept.folder / plan.id)
        yield Doomed(what=f"plans/{plan.id}", bytes=freed, why=plan.state(now), remove=partial(kept.remove, plan))
    drafts = [path for path in kept.folder.glob("*") if path.is_dir() and not (path / "plan.json").exists()]
    yield from old(drafts, now - LONGEST, "the plan was never finished", below=lake.settings.home)


def quality_results(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds results of checks of tables; the newest of each stays."""
    for folder in sorted(lake.settings.home.glob("quality/results/*")):
        newest = sorted(folder.glob("*.json"))[-1:]
        why = "results of more than a month ago"
        yield from old_files(folder, now - MONTH, why, below=lake.settings.home, spared=newest)


def logs(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds logs of programs that `up` starts no more; those of others are bounded by the supervisor."""
    programs = {"supervisord", *(name for names in supervisord.stages(lake.settings).values() for name in names)}
    of_others = [path for path in lake.settings.logs.glob("*.log*") if path.name.partition(".log")[0] not in programs]
    yield from old(of_others, now - MONTH, "its program runs no more", below=lake.settings.home)


def airflow(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds runs of this home's Airflow of more than a month ago, and their logs."""
    settings, since = lake.settings, now - MONTH
    if rows := airflow_processes.old_rows(settings, since):
        remove = partial(airflow_processes.remove_old_rows, settings, since)
        yield Doomed(what="airflow/airflow.db", bytes=0, why=f"{rows:,} runs and events of a month ago", remove=remove)
    for root in (settings.logs / "airflow", airflow_processes.directory(settings) / "logs"):
        for folder in sorted(path for path in root.glob("*") if path.is_dir() and not path.is_symlink()):
            yield from old_files(folder, since, "logs of more than a month ago", below=settings.home)


def spark_scratch(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds scratch of Spark that is older than each process that uses it now."""
    scratch = lake.settings.home / "spark"
    began = [process.create_time() for process in tagged_processes(str(scratch), "SPARK_LOCAL_DIRS")]
    since = min([now - _DAY, *(datetime.fromtimestamp(moment, UTC) for moment in began)])
    left = [path for path in scratch.glob("*") if path.name not in _OF_SPARK]
    yield from old(left, since, "its Spark has ended", below=lake.settings.home)


def class_archives(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds archives of classes of other versions that nobody reads, and drafts; `setup` makes them again."""
    cache = lake.settings.jars.parent
    yield from old(cache.glob("classes/tmp*"), now - _DAY, "its JVM was killed", below=cache)
    for archive in sorted(path for other in other_caches(cache) for path in other.glob("classes/*.jsa")):
        if datetime.fromtimestamp(archive.stat().st_atime, UTC) < now - _CLASSES:
            yield from old([archive], now - _CLASSES, "of another version, not read", below=cache.parent)


def drafts(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds drafts of files whose writers were killed."""
    settings, pattern = lake.settings, "*.[0-9]*.draft"
    left = [file for name in _WRITTEN for file in (settings.home / name).rglob(pattern)]
    left += settings.home.glob(pattern)
    yield from old(left, now - _DAY, "its writer was killed", below=settings.home)
    if "://" not in settings.lake_uri:
        root = Path(settings.lake_uri)
        yield from old(root.glob(f"*/*/_history/{pattern}"), now - _DAY, "its writer was killed", below=root)
