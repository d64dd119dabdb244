"""A table's function is pure if all that it calls, in whatever file, is known to be."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tables.declared import TABLE_FILE, TOPIC_FILE, edited, proved, written
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.registry import load

Loaded = Callable[..., None]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loaded]:
    """Loads a table whose function calls `used` of a module next to the declarations."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def load_it(helper: str, parameters: str = "") -> None:
        (tmp_path / "some_helper.py").write_text(helper)
        text = edited(TABLE_FILE, "@table(", f"import some_helper\n\n\n@table({parameters}")
        text = edited(text, "return readings", "return readings if some_helper.used(1) else readings")
        folder = written(tmp_path / "declared", {"plant/readings.py": TOPIC_FILE, "plant/newest.py": text})
        proved(load(folder))

    yield load_it
    sys.modules.pop("some_helper", None)


CLOCK = "Take times from the events"
CHANCE = "Leave chance out"
PLACE = "Other data come from a topic or a table"


@pytest.mark.parametrize(
    ("helper", "found", "instead"),
    [
        ("import random\ndef used(x):\n    return random.random()", "random.random in {}, line 3", CHANCE),
        ("from random import random\ndef used(x):\n    return random()", "random.Random.random in {}, line 3", CHANCE),
        (
            "from datetime import datetime as d\ndef used(x):\n    return d.now()",
            "datetime.datetime.now in {}, line 3",
            CLOCK,
        ),
        ("import time as t\nclass A:\n    def b(self):\n        return t.time()\ndef used(x):\n    return A().b()",
         "time.time in {}, line 4", CLOCK),
        ("def used(x):\n    from uuid import uuid4 as u\n    return u()", "uuid.uuid4 in {}, line 3", CHANCE),
        ("import os\ndef deep(x):\n    return os.getenv('A')\ndef used(x):\n    return deep(x)",
         "os.getenv in {}, line 3", PLACE),
        ("import random\nALL = {'a': lambda x: x,\n    'b': lambda x: random.random()}\ndef used(x):\n    return ALL",
         "random.random in {}, line 3", CHANCE),
        ("import functools, random\nP = functools.partial(random.choice, [1])\ndef used(x):\n    return P()",
         "random.choice in {}, line 2", CHANCE),
        ("import time\ndef used(x):\n    return [*map(time.sleep, x)]", "time.sleep in {}, line 3", CLOCK),
        ("import time\nSINCE = time.time()\ndef used(x):\n    return SINCE", "time.time in {}, line 2", CLOCK),
        ("import time\nNOW = time.time()\nSINCE = NOW - 5\ndef used(x):\n    return SINCE",
         "time.time in {}, line 2", CLOCK),
        (("import random\ndef pick(x):\n    return random.random()\n"
         "def used(x):\n    from pyspark.sql import functions as F\n    return F.udf(pick, 'double')"),
         "random.random in {}, line 3", CHANCE),
        ("import random\ndef used(x):\n    return getattr(random, x)()", "random in {}, line 3", CHANCE),
        ("def used(x):\n    return open(x).read()", "open in {}, line 2", PLACE),
        ("def used(x):\n    return hash('a')", "hash in {}, line 2", "hashlib"),
        ("def used(x):\n    return id(x)", "id in {}, line 2", "hashlib"),
        ("import sys\ndef used(x):\n    return getattr(sys.modules[__name__], x)",
         "sys.modules in {}, line 3", "by their names"),
        ("def used(x):\n    return eval(x)", "eval in {}, line 2", "by their names"),
        ("def used(x):\n    for y in {'a', 'b'}:\n        return y", "the order of a set in {}, line 2", "sorted"),
        ("def used(x):\n    return list(set(x))", "the order of a set in {}, line 2", "sorted"),
        ("ALL = {'a'}\ndef used(x):\n    return [y for y in ALL]", "the order of a set in {}, line 3", "sorted"),
        ("import numpy as np\ndef used(x):\n    return np.random.default_rng(x)",
         "numpy.random.default_rng in {}, line 3", CHANCE),
        ("import pandas as pd\ndef used(x):\n    return pd.read_csv(x)", "pandas.read_csv in {}, line 3", PLACE),
        ("from pandas import Timestamp as T\ndef used(x):\n    return T.now()", "Timestamp.now in {}, line 3", CLOCK),
    ],
)  # fmt: skip
def test_what_a_helper_uses_makes_the_table_impure(
    tmp_path: Path, loaded: Loaded, helper: str, found: str, instead: str
) -> None:
    with pytest.raises(BadDeclaration) as error:
        loaded(helper)
    assert "newest.py: uses " in error.value.message
    assert found.format(tmp_path / "some_helper.py") in error.value.message
    assert error.value.message.endswith("it gives the stream and the batch different answers.")
    assert instead in str(error.value.hint)
    assert error.value.facts["more"] == []


@pytest.mark.parametrize(
    "helper",
    [
        """import math, re, json, hashlib
def used(x):
    return math.sqrt(4), re.sub('a', 'b', 'c'), hashlib.sha256(b'a')""",
        """from datetime import UTC, datetime, timedelta
def used(x):
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(1), datetime.fromtimestamp(1, UTC)""",
        """from decimal import Decimal
from collections import Counter
def used(x):
    return Counter([Decimal(1)])""",
        """from functools import lru_cache
from itertools import chain
@lru_cache
def used(x):
    return [*chain([x])]""",
        """import numpy as np
import pandas as pd
import pyarrow as pa
def used(x):
    return np.add(1, 2), pd.Series([1]), pa.array([1])""",
        """from pathlib import Path
def used(x: Path) -> Path:
    y: Path = x
    return y""",
        """def used(x):
    id, hash = 1, 2
    return id, hash, [open for open in [1]], (lambda input: input)(1)""",
        """import random
def used(x, random=1):
    return random""",
        """import random
def used(x):
    return 1
def unused(x):
    return random.random()""",
        """def used(x):
    return sorted(set('ab')), 'a' in {'a'}, len({1})""",
        """import os.path
def used(x):
    return os.path.basename('a/b')""",
        """from uuid import UUID, uuid5
def used(x):
    return uuid5(UUID(int=1), 'a')""",
        """from urllib.parse import urlsplit
def used(x):
    return urlsplit('a')""",
        """def used(x):
    from pyspark.sql import functions as F
    return F.col""",
    ],
)
def test_what_computes_is_accepted_in_a_helper(loaded: Loaded, helper: str) -> None:
    loaded(helper)


UNKNOWN = "import sqlglot\ndef used(x):\n    return sqlglot.parse(x)"


def test_a_package_that_is_not_known_is_asked_for(loaded: Loaded) -> None:
    with pytest.raises(BadDeclaration, match=r"uses sqlglot.parse in .*some_helper.py, line 3: it is not") as error:
        loaded(UNKNOWN)
    assert str(error.value.hint).startswith('Write pure=["sqlglot"] if it reads no clock')


def test_a_package_that_the_author_vouches_for_is_accepted(loaded: Loaded) -> None:
    loaded(UNKNOWN, 'pure=["sqlglot"], ')


def test_what_is_known_to_be_impure_cannot_be_vouched_for(loaded: Loaded) -> None:
    with pytest.raises(BadDeclaration, match=r"uses random.random"):
        loaded("import random\ndef used(x):\n    return random.random()", 'pure=["random", "random.random"], ')


def test_a_module_of_the_repository_is_no_value(loaded: Loaded) -> None:
    with pytest.raises(BadDeclaration, match=r"holds the module tests\.rewrites of this repository") as error:
        loaded("from tests import rewrites\ndef used(x):\n    return getattr(rewrites, x)")
    assert str(error.value.hint).startswith("Use the functions of the module by their names")


def test_modules_that_are_vouched_for_are_a_list(loaded: Loaded) -> None:
    with pytest.raises(BadDeclaration, match="pure='sqlglot': expected a list"):
        loaded("def used(x):\n    return 1", 'pure="sqlglot", ')


def test_the_mistakes_of_several_files_are_one_error(loaded: Loaded) -> None:
    with pytest.raises(BadDeclaration) as error:
        loaded("import random, time\ndef used(x):\n    return random.random(), time.time()")
    assert error.value.message.count(", line 3") == 2
    assert CLOCK in str(error.value.hint)
    assert CHANCE in str(error.value.hint)
