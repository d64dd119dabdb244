"""What the note of a position keeps about the records of a partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twofold.features.work_queue.partition_progress import MOST, PartitionProgress


def admitted(*offsets: int, position: int = 10, note: str = "") -> PartitionProgress:
    progress = PartitionProgress(position, note)
    for offset in offsets:
        progress.admit(offset)
    return progress


def test_the_position_is_the_first_record_that_is_not_done() -> None:
    progress = admitted(10, 11, 12)
    for offset in (12, 10):
        progress.deliver(offset)
        progress.finish(offset)

    assert progress.committed() == (11, '{"1":null}')
    progress.finish(11)
    assert progress.committed() == (13, "")


def test_deliveries_are_counted_on_after_a_restart() -> None:
    before = admitted(10, 11)
    before.deliver(10)
    before.deliver(11)
    before.deliver(11)
    before.withdraw(10)

    after = PartitionProgress(*before.committed())

    assert (after.begun, after.done) == (1, 0)
    assert [after.admit(10), after.admit(11)] == [True, True]
    assert [after.deliveries(10), after.deliveries(11)] == [0, 2]


def test_records_that_are_gone_hold_nothing_up() -> None:
    """Retention removes 10 and 11, of which one was begun; all after them are done."""
    done = ",".join(f'"{distance}":null' for distance in range(2, MOST + 2))
    progress = PartitionProgress(10, f'{{"1":3,{done}}}')
    assert progress.is_full

    assert [progress.admit(12), progress.admit(13)] == [False, False]

    assert not progress.is_full
    assert progress.committed()[0] == 14


def test_gaps_between_offsets_are_no_records() -> None:
    progress = admitted(10, 500, 90_000)
    progress.finish(500)
    assert progress.committed() == (10, '{"490":null}')
    progress.finish(10)
    assert progress.committed() == (90_000, "")


def test_a_note_fits_into_what_a_broker_accepts() -> None:
    """The records of one more poll follow after it is full; offsets of a compacted topic are far apart."""
    from twofold.infra.kafka.group_member import MOST_RECORDS

    offsets = [10, *(10**11 + 10**9 * number for number in range(MOST - 1 + MOST_RECORDS))]
    progress = admitted(*offsets)
    for offset in offsets[1:]:
        progress.finish(offset)

    assert progress.is_full
    assert len(progress.committed()[1].encode()) < 4096


@given(st.lists(st.sampled_from(["deliver", "finish", "restart"]), max_size=60), st.randoms(use_true_random=False))
def test_no_record_is_lost_or_done_again_after_restarts(steps: list[str], chance: object) -> None:
    """Ten records; a dictionary says what has happened to each, since all of it was committed at once."""
    offsets = range(10, 20)
    deliveries, done = dict.fromkeys(offsets, 0), set[int]()
    progress = admitted(*offsets)
    for step in steps:
        if step == "restart":
            position, note = progress.committed()
            progress = PartitionProgress(position, note)
            read = [offset for offset in offsets if offset >= position]
            assert [offset for offset in read if progress.admit(offset)] == [o for o in offsets if o not in done]
            continue
        left = [offset for offset in offsets if offset not in done]
        if not left:
            continue
        offset = chance.choice(left)  # type: ignore[attr-defined]
        if step == "deliver":
            deliveries[offset] += 1
            progress.deliver(offset)
        else:
            done.add(offset)
            progress.finish(offset)
        assert {o: progress.deliveries(o) for o in offsets if o not in done} == {
            o: number for o, number in deliveries.items() if o not in done
        }
