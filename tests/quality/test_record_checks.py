"""Rules on Arrow batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.quality.rule_cases import CASES, Case
from twofold.infra.errors import BadArgument, BadDeclaration, SchemaMismatch
from twofold.quality.record_checks import broken
from twofold.quality.rules import Rule, between, matches, not_null, one_of, unique


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_record_gets_the_reasons_worked_out_by_hand(case: Case) -> None:
    assert [reasons or [] for reasons in broken(case.table, case.rules).to_pylist()] == case.reasons


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_batch_a_slice_and_chunks_are_judged_alike(case: Case) -> None:
    whole = case.table
    sliced = pa.concat_tables([whole, whole]).combine_chunks().slice(len(whole))
    chunked = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    for form in (sliced, chunked, pa.RecordBatch.from_struct_array(whole.to_struct_array().combine_chunks())):
        assert [reasons or [] for reasons in broken(form, case.rules).to_pylist()] == case.reasons


def test_a_dictionary_column_is_judged_by_its_values() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 0]), pa.array(["EWR", "x", None]))
    found = broken(pa.table({"v": column}), [matches("v", "[A-Z]{3}"), one_of("v", ["EWR"]), not_null("v")])
    both = ["matches(v, [A-Z]{3})", "one_of(v, ['EWR'])"]
    assert found.to_pylist() == [None, both, ["not_null(v)"], ["not_null(v)"], None]


def test_a_record_that_keeps_every_rule_has_null_for_reasons() -> None:
    found = broken(pa.table({"v": [1, 5, None]}), [between("v", 1, 4)])
    assert found.type == pa.list_(pa.string())
    assert found.to_pylist() == [None, ["between(v, 1, 4)"], None]


@pytest.mark.parametrize(
    ("column", "rule"),
    [
        (pa.array(["1"]), between("v", 0, 2)),
        (pa.array([1]), matches("v", "1")),
        (pa.array([1]), one_of("v", ["1"])),
        (pa.array([1]), one_of("v", [True])),
        (pa.array([1]), between("v", "2013-01-01T00:00:00Z", None)),
        (pa.array([0], pa.date32()), between("v", "2013-01-01T00:00:00Z", None)),
        (pa.array([[1]]), between("v", 0, 2)),
    ],
    ids=str,
)
def test_a_rule_on_a_column_of_another_type_is_refused_by_name(column: pa.Array, rule: Rule) -> None:
    with pytest.raises(BadDeclaration, match=r"The rule .* judges a .*; v is"):
        broken(pa.table({"v": column}), [rule])


def test_a_missing_column_is_named_with_those_that_exist() -> None:
    with pytest.raises(SchemaMismatch, match=r"not_null\(w\) reads w; there are v"):
        broken(pa.table({"v": [1]}), [not_null("w")])


def test_a_rule_that_needs_other_rows_is_refused() -> None:
    with pytest.raises(BadArgument, match=r"unique\(v\) cannot be decided on a record alone"):
        broken(pa.table({"v": [1]}), [unique("v")])
