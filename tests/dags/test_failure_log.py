"""When a task fails, it is logged, and the notifier of the settings is called."""

from __future__ import annotations

from typing import Any

import pytest

from twofold.dags.failure_log import failure_callbacks, log_failure
from twofold.infra.errors import BadArgument

CALLED: list[Any] = []


class Notifier:
    """A notifier as Airflow's are: called with the context of the task."""

    def __call__(self, context: Any) -> None:
        CALLED.append(context)


PAGER = Notifier()


@pytest.mark.parametrize("name", ["PAGER", "Notifier"])
def test_the_notifier_of_the_settings_is_called(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TWOFOLD_AIRFLOW_NOTIFIER", f"{__name__}:{name}")
    logged, notify = failure_callbacks()
    assert logged is log_failure
    CALLED.clear()
    notify({})
    assert CALLED == [{}]


def test_without_one_a_failure_is_logged_only() -> None:
    assert failure_callbacks() == [log_failure]


@pytest.mark.parametrize("named", ["no.such.module:X", f"{__name__}:NONE", f"{__name__}:CALLED", "word", ":x"])
def test_a_notifier_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("TWOFOLD_AIRFLOW_NOTIFIER", named)
    with pytest.raises(BadArgument, match="TWOFOLD_AIRFLOW_NOTIFIER"):
        failure_callbacks()
