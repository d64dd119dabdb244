"""The JVM jars of Spark's connectors and of the Kafka broker, exactly as `jars.lock` pins them.

Apache Ivy, which is inside pyspark's wheel, fetches those of a service when it is first prepared, or all of them
before: `twofold setup`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from xml.etree import ElementTree

from twofold.infra.atomic_write import write_atomically
from twofold.infra.errors import MissingTool
from twofold.infra.extras import package_folder
from twofold.infra.java import java
from twofold.infra.project.settings import Settings

Count = Callable[[int, int], object]
Configuration = Literal["spark", "broker", "connect", "flink", "registry"]

CONFIGURATIONS: tuple[Configuration, ...] = get_args(Configuration)
LOCK = Path(__file__).with_name("jars.lock")
MAVEN = "http://ant.apache.org/ivy/maven"
STAMP = ".verified"
TIMEOUT_S = 600
_LOOK_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Jar:
    """One pinned jar, or an archive of jars with another extension."""

    sha256: str
    configuration: Configuration
    organisation: str
    name: str
    revision: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def path(self) -> str:
        """Its path, relative to the directory of all jars."""
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.configuration}/{self.name}-{self.revision}{suffix}.{self.extension}"


def pinned(lock: Path = LOCK) -> tuple[Jar, ...]:
    """Reads a lock file, with lines of `sha256 configuration organisation:name:revision[:classifier][@extension]`."""
    lines = [line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    return tuple(_jar(*line) for line in lines)


def ensure(settings: Settings, configurations: Sequence[Configuration], count: Count = lambda *_: None) -> None:
    """Fetches the pinned jars into `settings.jars/<configuration>` and removes all others there.

    Returns immediately if they are there. Safe if several processes call it at once: one resolves, the others wait.

    Args:
        configurations: what needs them.
        count: called by a thread while they are fetched, with the number of jars that are there, and of all.

    Raises:
        MissingTool: no Java, or the jars cannot be fetched, or a download is not the pinned file.
    """
    if is_complete(settings, configurations):
        return
    settings.jars.mkdir(parents=True, exist_ok=True)
    with _only_one(settings.jars / ".lock"):
        missing = [name for name in configurations if not is_complete(settings, [name])]
        wanted = [jar for jar in pinned() if jar.configuration in missing]
        if problems(settings.jars, wanted):
            with _counted(settings.jars.parent / "ivy", wanted, count):
                replace(settings.jars, wanted)
        for name in missing:
            write_atomically(_stamp(settings, name), fingerprint(settings, name))


def is_complete(settings: Settings, configurations: Sequence[Configuration]) -> bool:
    """Whether the jars were verified against the current `jars.lock` and have kept their sizes and times since."""
    return all(
        (stamp := _stamp(settings, name)).exists() and stamp.read_text() == fingerprint(settings, name)
        for name in configurations
    )


def problems(directory: Path, jars: Sequence[Jar] | None = None) -> list[str]:
    """Lists the differences between a directory of jars and the pinned ones; empty if none. Reads every byte."""
    jars = pinned() if jars is None else jars
    expected = {jar.path: jar.sha256 for jar in jars}
    files = {directory / path for path in expected if (directory / path).exists()}
    files |= {path for name in _configurations(jars) for path in (directory / name).glob("*.jar")}
    files_by_name = {str(path.relative_to(directory)): path for path in files}
    missing = [f"{path} is missing" for path in expected if path not in files_by_name]
    extra = [f"{path} is not in {LOCK.name}" for path in files_by_name if path not in expected]
    wrong = [
        f"{path} has SHA-256 {digest}, expected {expected[path]}"
        for path in expected.keys() & files_by_name.keys()
        if (digest := hashlib.sha256(files_by_name[path].read_bytes()).hexdigest()) != expected[path]
    ]
    return sorted(missing + extra + wrong)


def replace(directory: Path, jars: Sequence[Jar]) -> None:
    """Fetches jars into `directory` and removes the other jars of the same configurations.

    Raises:
        MissingTool: the jars cannot be fetched, or a download is not the pinned file.
    """
    cache = directory.parent / "ivy"
    with tempfile.TemporaryDirectory(dir=directory, prefix=".resolving-") as scratch:
        resolved = Path(scratch) / "resolved"
        _resolve(resolved, jars=jars, cache=cache, scratch=Path(scratch))
        wrong = problems(resolved, jars)
        if wrong:
            raise MissingTool(
                "The JVM jars that were fetched are not the pinned ones:\n  " + "\n  ".join(wrong),
                hint=f"Do not run them. Remove {cache} and try again; check who serves them.",
            )
        for configuration in _configurations(jars):
            target = directory / configuration
            if target.exists():
                # A running JVM keeps the files that it has open.
                target.rename(Path(scratch) / f"old-{configuration}")
            (resolved / configuration).rename(target)


def _jar(sha256: str, configuration: str, module: str) -> Jar:
    module, _, extension = module.partition("@")
    organisation, name, revision, *classifier = module.split(":")
    if configuration not in CONFIGURATIONS:
        raise MissingTool(f"{LOCK.name} has {module} for {configuration!r}; expected one of {CONFIGURATIONS}.")
    return Jar(
        sha256=sha256,
        configuration=configuration,
        organisation=organisation,
        name=name,
        revision=revision,
        classifier="".join(classifier),
        extension=extension or "jar",
    )


def _configurations(jars: Sequence[Jar]) -> list[Configuration]:
    return list(dict.fromkeys(jar.configuration for jar in jars))


def _resolve(target: Path, *, jars: Sequence[Jar], cache: Path, scratch: Path) -> None:
    ivy, ivy_settings = scratch / "ivy.xml", scratch / "ivysettings.xml"
    ivy.write_bytes(_ivy_file(jars))
    ivy_settings.write_bytes(_ivy_settings(cache))
    pattern = f"{target}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
    options: list[str | Path] = [
        "-settings",
        ivy_settings,
        "-ivy",
        ivy,
        "-retrieve",
        pattern,
        "-confs",
        *_configurations(jars),
    ]
    try:
        ran = subprocess.run(
            [java(), "-jar", _ivy_jar(), *options], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise MissingTool(f"Fetching the JVM jars took longer than {TIMEOUT_S} s.", hint="Try again.") from None
    if ran.returncode != 0:
        failures = [
            line.strip() for line in (ran.stdout + ran.stderr).splitlines() if "not found" in line or "ERROR" in line
        ]
        raise MissingTool(
            "The JVM jars cannot be fetched: " + ("; ".join(failures[:3]) or f"Ivy ended with {ran.returncode}."),
            hint="The first run needs the network. Name a proxy in JAVA_TOOL_OPTIONS (-Dhttps.proxyHost=...).",
        )


@contextmanager
def _counted(cache: Path, jars: Sequence[Jar], count: Count) -> Iterator[None]:
    """Counts the jars that Ivy has put into its cache, again and again until the block ends."""
    ended = threading.Event()
    files = [cache / jar.organisation / jar.name / f"{jar.extension}s" / Path(jar.path).name for jar in jars]

    def look() -> None:
        while not ended.wait(_LOOK_S):
            count(sum(file.exists() for file in files), len(files))

    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _ivy_jar() -> Path:
    return sorted((package_folder("pyspark") / "jars").glob("ivy-*.jar"))[-1]


def _ivy_file(jars: Sequence[Jar]) -> bytes:
    """Builds an Ivy module that depends on these jars and on none of their transitive dependencies."""
    ElementTree.register_namespace("m", MAVEN)
    module = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(module, "info", organisation="twofold", module="jars")
    configurations = ElementTree.SubElement(module, "configurations")
    for name in _configurations(jars):
        ElementTree.SubElement(configurations, "conf", name=name)
    dependencies = ElementTree.SubElement(module, "dependencies")
    declared: dict[tuple[str, ...], ElementTree.Element] = {}
    for jar in jars:
        identity = (jar.configuration, jar.organisation, jar.name, jar.revision)
        if identity not in declared:
            declared[identity] = ElementTree.SubElement(
                dependencies,
                "dependency",
                org=jar.organisation,
                name=jar.name,
                rev=jar.revision,
                conf=f"{jar.configuration}->default",
                transitive="false",
            )
        artifact = ElementTree.SubElement(
            declared[identity], "artifact", name=jar.name, type=jar.extension, ext=jar.extension
        )
        if jar.classifier:
            artifact.set(f"{{{MAVEN}}}classifier", jar.classifier)
    return ElementTree.tostring(module)


def _ivy_settings(cache: Path) -> bytes:
    """Builds Ivy's settings: Maven Central, jars only, since `jars.lock` lists every jar with a stronger checksum."""
    root = ElementTree.Element("ivysettings")
    ElementTree.SubElement(root, "settings", defaultResolver="central")
    ElementTree.SubElement(root, "caches", defaultCacheDir=str(cache))
    resolvers = ElementTree.SubElement(root, "resolvers")
    ElementTree.SubElement(resolvers, "ibiblio", name="central", m2compatible="true", usepoms="false", checksums="")
    return ElementTree.tostring(root)


def _stamp(settings: Settings, configuration: Configuration) -> Path:
    return settings.jars / configuration / STAMP


def fingerprint(settings: Settings, configuration: Configuration) -> str:
    """Returns the sizes and times of the jars of a configuration; costs one `stat` per jar."""
    stats = {path.name: path.stat() for path in sorted((settings.jars / configuration).glob("*.jar"))}
    files = {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}
    return json.dumps({"lock": hashlib.sha256(LOCK.read_bytes()).hexdigest(), **files})


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        # Left by a process that was killed: no other process can be resolving now.
        for leftover in lock.parent.glob(".resolving-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield
