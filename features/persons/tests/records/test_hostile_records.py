"""Any bytes in place of a record: sealing gives bytes, and ingest an event or quarantine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tables.declared import bound_as
from twofold import Topic, domain_of, from_webhook, personal, start_of, token_of, year_group
from twofold.features.persons.keys.ciphertext import RECORD, is_sealed, unseal
from twofold.features.persons.keys.key_store import KeyStore
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.person_cover import PersonCover
from twofold.features.persons.records.personal import with_sealed_columns
from twofold.features.persons.records.record_sealer import PersonalRecord, RecordSealer
from twofold.features.persons.tests.records.test_record_sealer import a_topic
from twofold.features.persons.tests.records.test_sealed_changes import TOPIC as CHANGES
from twofold.features.persons.tests.records.test_sealed_changes import event
from twofold.infra.encodings.json.json_fields import MOST_DEPTH, is_deep
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoder
from twofold_archive.format.record_columns import HEADERS, HEADERS_TYPE

LOGINS = a_topic(
    note="json?",
    price="decimal(10,2)?",
    born="date?",
    photo="binary?",
    numbers="array<double>?",
    mail_token=token_of("mail"),
    domain=domain_of("mail"),
    start=start_of("phone", 3),
    years=year_group("phone", [1980]),
)
HOOKS = with_sealed_columns(
    bound_as(
        from_webhook(scheme="github", schema={"payer": "string", "mail": personal("payer"), "note": "json?"}), "hooks"
    )
)
TOPICS = [LOGINS, HOOKS, CHANGES]
DEEP = (MOST_DEPTH - 3, MOST_DEPTH, MOST_DEPTH + 1, 960, 985, 990, 993, 996, 1_100, 60_000)


def nested(count: int, start: bytes, end: bytes, inner: bytes = b"0") -> bytes:
    return start * count + inner + end * count


NUMBERS = b"1e-99999999999999999999 1e99999999999999999999 -0.0 1e999 0e-5000 -1e-400 NaN 01 -1 1E+30 Infinity 1e309"
numbers = st.sampled_from([*NUMBERS.split(), b"9223372036854775808", b"1" * 6_000, b"0." + b"1" * 6_000])
TEXTS = rb"""\ud800 \udc00\ud800 \u0000 \ud83d\ude00 @ 1979-02-30 0000-01-01T00:00:00+99:00 9999-12-31T23:59:59-23:59 \
0001-01-01T00:00:00+23:59 2026-11-27T12:00:00Z"""
ODD = [
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\xf4\x90\x80\x80"',
    b'"a',
    b'""',
    b'"enc:1:' + b"A" * 22 + b':"',
    '"a@é.😀"'.encode(),
]
texts = st.sampled_from([*(b'"%b"' % text for text in TEXTS.split()), *ODD]) | st.text().map(
    lambda text: json.dumps(text).encode()
)
deep = st.builds(nested, st.sampled_from(DEEP), *map(st.just, (b"[", b"]"))) | st.builds(
    nested,
    st.sampled_from(DEEP),
    st.sampled_from([b'{"a":', b'{"":', b'[{"mail":']),
    st.sampled_from([b"}", b"}]", b""]),
)
names = st.sampled_from(
    ["mail", "id", "customer", "payer", "client", "contact", "note", "tags", "price", "phone", "x", ""]
)


def joined(members: Sequence[tuple[str, bytes]]) -> bytes:
    return b"{%b}" % b",".join(b"%b:%b" % (json.dumps(name).encode(), cell) for name, cell in members)


values = st.recursive(
    numbers | texts | deep | st.sampled_from([b"null", b"true", b"{}", b"[]", b"nul"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda cells: b"[%b]" % b",".join(cells))
        | st.lists(st.tuples(names, inner), max_size=3).map(joined)
    ),
    max_leaves=4,
)
AT = b'"2026-11-27T12:00:00Z"'
rows = st.lists(st.tuples(st.sampled_from([*LOGINS.schema, "nick", "payer", "client"]), values), max_size=3).map(
    lambda cells: joined(
        [*{"id": b"1", "at": AT, **dict.fromkeys(("customer", "payer", "client"), b'"ann"'), **dict(cells)}.items()]
    )
)
changes = st.tuples(rows | values, rows | values).map(
    lambda pair: (
        event("u", 1, 2).replace(b'"after": 1', b'"after": ' + pair[0]).replace(b'"before": 2', b'"before": ' + pair[1])
    )
)
records = rows | values | changes | st.binary()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    made = Settings(home=tmp_path_factory.mktemp("keys"))
    make_keys(made)
    return made


@pytest.fixture(scope="module")
def store(settings: Settings) -> Iterator[KeyStore]:
    with closing(KeyStore(settings)) as opened:
        yield opened


def raw(*values: bytes) -> pa.Table:
    count = len(values)
    cells = {"partition": [0] * count, "offset": range(count), "timestamp": [1_795_780_800_000_000] * count}
    columns = {**cells, "key": [None] * count, "value": values}
    table = pa.table([pa.array(columns[f.name], f.type) for f in RAW_SCHEMA], RAW_SCHEMA)
    return table.append_column(HEADERS, pa.nulls(count, HEADERS_TYPE))


@given(records)
@example(b'{"customer": "ann", "mail": 1e-99999999999999999999}')
@example(b'{"customer": "ann", "mail": %b}' % nested(990, b"[", b"]"))
@example(b'{"customer": "ann", "note": %b}' % nested(993, b"[", b"]"))
def test_any_bytes_are_sealed_and_decoded_or_refused(store: KeyStore, settings: Settings, value: bytes) -> None:
    for topic in TOPICS:
        found = RecordSealer(topic, store).seal(value)
        assert found is not None
        assert PersonalRecord(topic).is_sealed(found)
        if is_sealed(found):
            assert unseal(found.decode(), store.find, RECORD) == value
        for ingested in (value, found):
            decoded = Decoder(topic).decode(raw(ingested), None)
            assert len(decoded.accepted) + len(decoded.rejected) == 1
            kept = PersonCover(topic).quarantined(decoded.rejected, settings)["value"].to_pylist()
            assert all(PersonalRecord(topic).is_sealed(one) for one in kept)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_a_record_that_is_nested_too_deeply_is_sealed_as_a_whole(store: KeyStore, topic: Topic) -> None:
    """By one bound, wherever it is: the stack of a process ends at about 990, and not at the same depth in each."""
    for depth, is_whole in ((MOST_DEPTH - 5, False), (MOST_DEPTH + 1, True)):
        row = {"id": 1, "customer": "ann", "payer": "ann", "client": "ann"}
        value = event("c", row) if topic is CHANGES else json.dumps(row).encode()
        value = value.replace(b'"ann"}', b'"ann", "mail": %b}' % nested(depth, b'{"a":', b"}"), 1)
        assert is_sealed(RecordSealer(topic, store).seal(value) or b"") == is_whole


def test_depth_is_that_of_values_and_not_of_texts() -> None:
    assert not is_deep(json.dumps({"text": '[{"' * 2_000, "more": ["\\", "\\[" * 999]}).encode())
    assert not is_deep(json.dumps([[{}]] * 5_000).encode())
    for count in (MOST_DEPTH, MOST_DEPTH + 1):
        assert is_deep(nested(count, b'{"[]":', b"}")) == is_deep(nested(count, b"[", b"")) == (count > MOST_DEPTH)


def test_the_bound_of_depth_takes_time_in_proportion_to_a_record() -> None:
    """Of texts without an end, too, which could be looked for again from every quotation mark on."""
    assert is_deep(b"[" * 1_000 + b'"' + b'\\"[' * 300_000)
    assert is_deep(b"[" * 300_000 + b'"\\')


def test_a_batch_of_refused_records_is_quarantined_for_any_columns() -> None:
    """A column of structs that may be null could not be made of no rows."""
    found = Decoder(LOGINS).decode(raw(b"no JSON", b"{}"), None)
    assert (len(found.accepted), len(found.rejected)) == (0, 2)
