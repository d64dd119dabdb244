"""What the archive raises is handled by commands and DAGs as every other error."""

from __future__ import annotations

import pytest

from twofold.infra import errors
from twofold.infra.archive.platform_archive import ArchiveFiles, PlatformArchive, own_errors
from twofold_archive.format import archive_errors
from twofold_archive.format.segment_store import Store


@pytest.mark.parametrize("kind", archive_errors.ArchiveError.__subclasses__())
def test_an_error_of_the_archive_is_the_one_of_this_name(kind: type[archive_errors.ArchiveError]) -> None:
    own = getattr(errors, kind.__name__, errors.TwofoldError)
    assert (own is errors.TwofoldError) == (kind is archive_errors.UnknownMetadata)
    with pytest.raises(own, match="A message") as raised, own_errors():
        raise kind("A message.", hint="A hint.", offset=7)
    assert (type(raised.value), raised.value.hint, raised.value.facts) == (own, "A hint.", {"offset": 7})


def test_what_is_not_archived_is_worth_another_try() -> None:
    archive = PlatformArchive(Store(ArchiveFiles("nowhere")), {})
    with pytest.raises(errors.NotArchived, match="nothing of the partition yet") as asked:
        archive.plan({"orders": {0: (0, 1)}})
    assert asked.value.retryable
    with pytest.raises(errors.NotArchived):
        list(archive.read({"orders": {0: (0, 1)}}, ["offset"]))
