"""The packages that only some projects need: each is brought by an extra, `pip install "twofold[EXTRA]"`."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from twofold.infra import IS_CHECKOUT
from twofold.infra.errors import MissingTool

EXTRAS = {
    "platform": "`up` and what it starts: broker, streams, archive, Airflow, page",
    "avro": "records in Avro",
    "capture": "captured tables and copies in PostgreSQL, with a server of it",
    "demo": "the demos",
    "mcp": "the server that assistants ask",
    "notebook": "notebooks",
    "persons": "encrypted values of persons",
    "protobuf": "records in Protobuf",
    "quality-docs": "a second count of what breaks rules, by Great Expectations, and its pages",
    "s3": "a lake or an archive on S3",
    "search": "searches in texts",
    "work": "records as work for programs of one's own",
    "all": "all of these",
}
"""Each extra, and what its packages are for."""
_MODULES = {
    "apache_airflow": "airflow",
    "apache_airflow_providers_standard": "airflow",
    "grpcio_tools": "grpc_tools",
    "kafka_python": "kafka",
}
"""Packages whose module has another name."""
_REQUIREMENT = re.compile(r"""([\w.-]+)[^;]*(?:;.*\bextra == ["']([\w-]+)["'])?""")


def require_extra(extra: str) -> None:
    """Refuses to go on without a package that an extra brings.

    Raises:
        MissingTool: names the package and the extra.
    """
    for module, (_, brought_by) in _packages().items():
        if brought_by == extra and find_spec(module) is None:
            raise _missing(module)


def package_folder(module: str) -> Path:
    """Returns the folder of an installed package, which is not imported.

    Raises:
        MissingTool: it is not installed; names the extra that brings it.
    """
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(module)
    return Path(spec.submodule_search_locations[0])


def missing_tool(error: BaseException | None) -> MissingTool | None:
    """Returns the error that names the extra if an error, or a cause of it, is that a package of ours is missing."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and (module := (error.name or "").partition(".")[0]) in _packages():
            return _missing(module)
        error = error.__cause__
    return None


def _missing(module: str) -> MissingTool:
    package, extra = _packages().get(module, (module.replace("_", "-"), ""))
    purpose = f", for {EXTRAS[extra]}," if extra else ""
    wanted = f'"twofold[{extra}]"' if extra else "twofold"
    command = "make setup" if IS_CHECKOUT else f"pip install {wanted}"
    return MissingTool(f"The package {package}{purpose} is not installed.", hint=f"`{command}` installs it.")


@cache
def _packages() -> dict[str, tuple[str, str]]:
    """Maps each module that we require to its package, and to the extra that brings it, if one does."""
    try:
        required = [requirement for line in requires("twofold") or () if (requirement := _REQUIREMENT.match(line))]
    except PackageNotFoundError:  # a checkout that is not set up
        return {}
    extras = [requirement[2] or "" for requirement in required]
    # Extras that include another one list its packages, too.
    required.sort(key=lambda requirement: -extras.count(requirement[2] or ""))
    named = {
        re.sub(r"[-.]", "_", requirement[1]).lower(): (requirement[1], requirement[2] or "") for requirement in required
    }
    return {_MODULES.get(name, name): brought for name, brought in named.items()}
