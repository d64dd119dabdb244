"""Reads schemas from a registry over HTTP, by Confluent's REST interface."""

from __future__ import annotations

import base64
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import msgspec

from twofold.infra.errors import RegistryUnreachable

_TIMEOUT_S = 10
_UNKNOWN_S = 30  # an unknown id is asked for again after this long
_MAX_IMPORTS = 100


class SchemaRegistry:
    """Requests each schema once: an id never changes its meaning.

    Args:
        url: as `https://registry:8081`, with the path before `/schemas` if there is one; `user:password@` before the
            host is sent as basic authentication.
    """

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self._url = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username:
            secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
        self._lock = threading.Lock()
        self._known: dict[int | str, tuple[str, tuple[tuple[str, str], ...]]] = {}
        self._unknown: dict[int | str, float] = {}

    def find(self, name: int | str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
        """Returns the text of the schema of an id or a GUID, and its imports as (name, text); None if unknown.

        Raises:
            RegistryUnreachable: it does not answer, or refuses. Retryable.
        """
        with self._lock:
            if name not in self._known and time.monotonic() - self._unknown.get(name, -_UNKNOWN_S) >= _UNKNOWN_S:
                path = f"/schemas/{'guids' if isinstance(name, str) else 'ids'}/{name}"
                answer = self._get(path)
                if answer is None:
                    self._unknown[name] = time.monotonic()
                else:
                    imports: dict[str, str] = {}
                    self._import(answer, imports)
                    self._known[name] = str(answer["schema"]), tuple(imports.items())
            return self._known.get(name)

    def _import(self, answer: dict[str, Any], found: dict[str, str]) -> None:
        """Collects the imports of a schema, each after its own imports."""
        for reference in answer.get("references") or ():
            name, subject = str(reference["name"]), urllib.parse.quote(str(reference["subject"]), safe="")
            if name in found or len(found) >= _MAX_IMPORTS:
                continue
            imported = self._get(f"/subjects/{subject}/versions/{int(reference['version'])}")
            if imported is not None:
                self._import(imported, found)
                found[name] = str(imported["schema"])

    def _get(self, path: str) -> dict[str, Any] | None:
        request = urllib.request.Request(self._url + path, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                return msgspec.json.decode(response.read(), type=dict[str, Any])
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise self._unreachable(path, f"answers {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise self._unreachable(path, f"does not answer: {reason}") from error

    def _unreachable(self, path: str, what: str) -> RegistryUnreachable:
        return RegistryUnreachable(
            f"The schema registry {self._url} {what} (asked for {path}).",
            hint="Records wait until it does. TWOFOLD_SCHEMA_REGISTRY says where it is; a schema that is a file below "
            "schemas/ is not asked for.",
        )
