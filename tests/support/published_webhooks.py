"""Octokit's examples of webhooks and its signatures, fetched by npm: 329 payloads of 58 kinds, under MIT's licence."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.npm_package import fetched

EXAMPLES, METHODS = "@octokit/webhooks-examples@7.6.1", "@octokit/webhooks-methods@6.0.0"
SIGN = """
import { sign } from "./package/dist-node/index.js";
import { readFileSync } from "node:fs";
const { secret, bodies } = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(await Promise.all(bodies.map((body) => sign(secret, body)))));
"""


def examples(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """The kind of each event, and its payload."""
    with tarfile.open(fetched(EXAMPLES, folder / "examples")) as packed:
        kinds = json.load(packed.extractfile("package/api.github.com/index.json"))  # type: ignore[arg-type]
    return [(kind["name"], example) for kind in kinds for example in kind["examples"]]


def signatures(folder: Path, secret: str, bodies: Sequence[str]) -> list[str]:
    """The signature of each body, by GitHub's own code."""
    archive = fetched(METHODS, folder / "methods")
    with tarfile.open(archive) as packed:
        packed.extractall(archive.parent, filter="data")
    (archive.parent / "sign.mjs").write_text(SIGN)
    given = json.dumps({"secret": secret, "bodies": bodies})
    ran = subprocess.run(
        ["node", "sign.mjs"], cwd=archive.parent, input=given, capture_output=True, text=True, check=True, timeout=120
    )
    return [str(signature) for signature in json.loads(ran.stdout)]
