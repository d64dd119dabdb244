"""Lists the licences of all that the platform runs, by the facts that packages state of themselves."""

from __future__ import annotations

import re
from collections import defaultdict
from importlib import metadata

from tests import ROOT

FREE = {
    "Apache-2.0": ("Apache-2.0", "Apache Software License"),
    "MIT, ISC, Zlib or 0BSD": ("MIT", "MIT-0", "MIT License", "ISC", "ISC License (ISCL)"),
    "BSD": (
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSD License",
        "3-Clause BSD License",
        "BSD-derived (http://www.repoze.org/LICENSE.txt)",
        "BSD-2-Clause AND Apache-2.0 WITH LLVM-exception",
        "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
    ),
    "PSF-2.0": ("PSF-2.0", "Python Software Foundation License", "MIT AND PSF-2.0"),
    "more than one of these": (
        "Apache-2.0 AND MIT",
        "Apache-2.0 OR BSD-2-Clause",
        "Apache-2.0 OR BSD-3-Clause",
        "MIT OR Apache-2.0",
        "Apache Software License, MIT License",
        "BSD License, Apache Software License",
        "MIT License, Apache Software License",
    ),
    "public domain": (
        "CC0",
        "The Unlicense (Unlicense)",
        "Public Domain, BSD License, GNU General Public License (GPL)",
    ),
    "MPL-2.0: changes of its own files are published": ("Mozilla Public License 2.0 (MPL 2.0)", "MPL-2.0 AND MIT"),
    "LGPL: used as a library that can be replaced": (
        "LGPL-3.0-only",
        "GNU Lesser General Public License v2 or later (LGPLv2+)",
    ),
    "Artistic, or GPL at the choice of who uses it": (
        "Artistic License, GNU General Public License (GPL), GNU General Public License v2 or later (GPLv2+)",
    ),
}
"""What is free to use -> what packages call it."""
_JARS = """
Most jars of `infra/project/jars.lock` are Apache-2.0: Kafka, Spark, Delta Lake, Debezium, Jackson, Jetty, Scala. The
others:

| licence | jars |
| --- | --- |
| MIT | SLF4J, Checker Framework's qualifiers, ClassGraph, argparse4j, JOpt Simple, pcollections |
| BSD | PostgreSQL's JDBC driver, Protocol Buffers, zstd-jni, re2j |
| public domain or BSD-2-Clause | HdrHistogram |
| EPL-2.0, or GPL-2.0 with the Classpath exception | Jersey, HK2, Jakarta's annotation, servlet and REST interfaces |
| EDL-1.0, which is BSD-3-Clause | Jakarta's activation and XML binding |
| CDDL, or GPL-2.0 with the Classpath exception | the older activation and XML binding (`javax`) |
"""


def licences() -> str:
    """Returns the page of licences, below its heading.

    Raises:
        ValueError: a package states a licence that is not listed as free.
    """
    groups = {stated: group for group, all_stated in FREE.items() for stated in all_stated}
    packages = defaultdict(set)
    for name in required():
        stated = stated_by(name)
        if stated not in groups:
            raise ValueError(f"{name} states the licence {stated!r}; expected one of `FREE` in docs/licences.py.")
        packages[groups[stated]].add(name)
    lines = [f"| {group} | {', '.join(sorted(packages[group]))} |" for group in FREE]
    return (
        "Twofold is [Apache-2.0](../../LICENSE). It has no code of others; what it runs is installed by `pip`. All of\n"
        "it may be used freely, also within a company.\n\n"
        "| licence | Python packages |\n| --- | --- |\n" + "\n".join(lines) + "\n" + _JARS
    )


def required() -> list[str]:
    """Returns the packages of requirements.txt that are installed here: those of other systems are not."""
    names = re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE)
    return [name for name in dict.fromkeys(names) if next(iter(metadata.distributions(name=name)), None)]


def stated_by(name: str) -> str:
    """Returns the licence that an installed package states, in its words."""
    about = metadata.metadata(name)
    classified = [text.rpartition(" :: ")[2] for text in about.get_all("Classifier", []) if text.startswith("License")]
    return about.get("License-Expression") or ", ".join(classified) or about.get("License", "").partition("\n")[0]
