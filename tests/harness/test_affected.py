"""Which tests a change affects, in a small tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.affected import LAWS, affected

FILES = {
    "infra/__init__.py": "",
    "infra/disk.py": "SIZE = 1",
    "infra/net.py": "",
    "infra/lonely.py": "",
    "batch/__init__.py": "",
    "batch/rewrite.py": "def run():\n    from twofold.infra.disk import SIZE",
    "batch/types.py": "if TYPE_CHECKING:\n    from twofold.infra.disk import SIZE",
    "tests/__init__.py": "",
    "conftest.py": "import twofold.infra.net\nfrom tests.servers import broker",
    "tests/servers.py": "import twofold.infra.disk",
    "tests/worker.py": "import twofold.batch.rewrite",
    "tests/test_rooms.py": "",
    "tests/infra/conftest.py": "",
    "tests/infra/test_disk.py": "from twofold.infra import disk",
    "tests/infra/test_server.py": "def test_a(broker): ...",
    "tests/batch/test_rewrite.py": "from twofold.batch.rewrite import run",
    "tests/batch/test_types.py": "import twofold.batch.types",
    "tests/batch/test_killed.py": 'COMMAND = ["-m", "tests.worker"]',
    "tests/batch/test_patched.py": 'TARGET = "batch.rewrite.run"',
    "tests/docs/test_docs.py": "",
    "packages/twofold_x/twofold_x/algebra.py": "",
    "packages/twofold_x/twofold_x/lonely.py": "",
    "packages/twofold_x/tests/test_algebra.py": "import twofold_x.algebra",
}
BATCH = {f"tests/batch/test_{name}.py" for name in ("rewrite", "types", "killed", "patched")}
OF_REWRITE = BATCH - {"tests/batch/test_types.py"}
ALL = {file for file in FILES if "/test_" in file}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ([], set()),
        (["batch/rewrite.py"], OF_REWRITE),
        (["batch/types.py"], {"tests/batch/test_types.py"}),
        (["infra/disk.py"], {*OF_REWRITE, "tests/infra/test_disk.py", "tests/infra/test_server.py"}),
        (["infra/net.py"], ALL),
        (["tests/infra/conftest.py"], {"tests/infra/test_disk.py", "tests/infra/test_server.py"}),
        (["packages/twofold_x/twofold_x/algebra.py"], {"packages/twofold_x/tests/test_algebra.py"}),
        (["packages/twofold_x/twofold_x/lonely.py"], {"packages/twofold_x/tests/test_algebra.py"}),
        (["tests/infra/test_disk.py"], {"tests/infra/test_disk.py"}),
        (["infra/lonely.py"], {"tests/infra/test_disk.py", "tests/infra/test_server.py"}),
        (["batch/deleted.py"], BATCH),
        (["batch/queries.sql"], BATCH),
        (["README.md"], {"tests/docs/test_docs.py"}),
        (["Makefile"], ALL),
        (["batch/types.py", "README.md"], {"tests/batch/test_types.py", "tests/docs/test_docs.py"}),
    ],
)
def test_a_change_selects_the_tests_that_import_it(tmp_path: Path, changed: list[str], expected: set[str]) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert affected(tmp_path, FILES.keys(), changed) - LAWS == expected - LAWS
