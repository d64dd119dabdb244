"""Finds the schema of a record: among the files of the repository, else in the registry."""

from __future__ import annotations

import functools

from twofold.infra.encodings.schema_files import Schema, SchemaFiles
from twofold.infra.kafka.schema_registry import SchemaRegistry
from twofold.infra.project.settings import Settings


def find_schema(files: SchemaFiles, name: int | str) -> Schema:
    """Returns the schema of an id or a GUID.

    Raises:
        LookupError: neither has it; lists what they have.
        RegistryUnreachable: the registry does not answer. Retryable.
    """
    schema = files.find(name)
    if schema is not None:
        return schema
    url = Settings.from_environment().schema_registry
    if url:
        answer = _registry(url).find(name)
        if answer is not None:
            return Schema(*answer)
    there = f"schemas/{files.subject} has {', '.join(map(str, files.by_id))}"
    raise LookupError(f"the schema {name} is unknown: {there}{', and the registry has it not' if url else ''}")


@functools.cache
def _registry(url: str) -> SchemaRegistry:
    return SchemaRegistry(url)
