"""Only `twofold_algebra/sql` quotes and escapes names and values; three files read SQL by regular expressions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.test_rooms import imports_of, is_of_removed_feature, modules_in, path_of

QUOTING = "twofold_algebra/sql/"
NOT_SQL = {
    "batch/ledgers/corrected_rows.py": "a command of a shell",
    "features/persons/certificate.py": "a command of a shell",
    "features/capture/operate/capture_scaffold.py": "Python",
    "features/analysts/session_commands.py": "Python",
    "cli/run_view.py": "a command of a shell",
    "cli/writing/scaffold.py": "Python",
    "dags/dag_docs.py": "Markdown",
    "features/search/stored_query.py": "a part of a stored query, in a message",
    "features/page/charts.py": "attributes of SVG, which MarkupSafe escapes",
    "features/page/life_chart.py": "attributes of SVG, which MarkupSafe escapes",
    "twofold_algebra/plan_mistakes.py": "Python, in the hint of a refusal",
    "twofold_algebra/reading/connect_plan.py": "the name of a relation, in a message",
    "twofold_algebra/dependencies.py": "the name of a method, in a message",
}
"""File -> what it quotes by hand."""
READS_SQL = {
    "twofold_algebra/sql/names.py": "the names in a path, and the words of a condition",
    "twofold_algebra/sql/impure_functions.py": "the calls of a condition, and what else its row does not decide",
    "features/analysts/sql_query.py": "whether a statement begins with EXPLAIN, which DuckDB does not parse further",
}
"""File -> what its regular expressions read of SQL."""
READS_OTHER_TEXT = {
    "features/capture/operate/capture_scaffold.py": "the name of a captured table, and a size in the name of a type",
    "cli/parsing.py": "offsets, numbers and dates of arguments",
    "cli/writing/new_project.py": "imports of declarations",
    "cli/writing/sample.py": "values of sampled records",
    "dags/operators/params.py": "fields of forms",
    "infra/airflow/airflow_processes.py": "lines of Airflow's log",
    "features/capture/captured_table.py": "names of captures",
    "features/capture/catalog_changes.py": "a size in the name of a type",
    "features/capture/debezium_connector.py": "nothing: it escapes names for Debezium's own patterns",
    "infra/delta/logged_commit.py": "names of files of a Delta log",
    "twofold_algebra/sql/interval_text.py": "durations",
    "infra/extras.py": "requirements of a package",
    "infra/encodings/column_types.py": "types of columns of a declaration",
    "infra/encodings/json/json_fields.py": "bytes of JSON",
    "infra/java.py": "the version that Java prints",
    "features/persons/keys/ciphertext.py": "encrypted values",
    "infra/spark/spark_session.py": "a size of memory",
    "features/search/stored_query.py": "stored queries",
    "features/search/search_index.py": "whether the words of a search name a column",
    "quality/portable_regex.py": "regular expressions of rules",
    "quality/rule.py": "names of types",
    "quality/rule_values.py": "dates of bounds",
    "streaming/driver.py": "names of exceptions in an error of Spark",
    "testing/sample_records.py": "the regular expressions of rules, of which it makes values",
    "twofold_algebra/plan_mistakes.py": "the value of a literal",
    "tables/declare/analysis.py": "errors of Spark, and the plan that it analysed",
    "tables/declare/code_fingerprint.py": "names of modules, and addresses in texts of values",
    "tables/declare/declaration_files.py": "errors of Python",
    "tables/declare/functions/event_patterns.py": "a schema's list of columns",
    "tables/declare/metadata_columns.py": "lines of a docstring",
    "tables/declare/parameter_checks.py": "names of a declaration",
    "features/capture/captured_topic.py": "the name of a captured table",
}
"""File -> what its regular expressions read."""
SIGNS = "'\"`"
PLACE = re.compile(r"(['\"`])\{\w*\}\1")


def quoted_by_hand(source: str) -> Iterator[tuple[int, str]]:
    """Values that a text puts between signs of quotation, with their line; hints and messages are for people."""
    tree = ast.parse(source)
    for_people = {id(part) for node in ast.walk(tree) if _is_for_people(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and id(node) not in for_people:
            for before, value, after in zip(node.values, node.values[1:], node.values[2:], strict=False):
                if isinstance(value, ast.FormattedValue) and _is_quoted(_text(before), _text(after)):
                    yield value.lineno, ast.unparse(value.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in for_people:
            yield from ((node.lineno, found[0]) for found in PLACE.finditer(node.value))
        elif isinstance(node, ast.BinOp) and any(_text(side) in tuple(SIGNS) for side in (node.left, node.right)):
            yield node.lineno, ast.unparse(node)


def escapes(source: str) -> list[int]:
    """The lines that double a sign of quotation, or put a backslash before it, or take that back."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace"
        for pair in [sorted(map(_text, node.args[:2]), key=len)]
        if len(pair) == 2 and pair[0] in tuple(SIGNS + "\\") and pair[1] in (pair[0] * 2, "\\" + pair[0])
    ]


def _is_for_people(node: ast.AST) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, ast.Raise) or (isinstance(node, ast.keyword) and node.arg == "hint")


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_quoted(before: str, after: str) -> bool:
    if not before or not after or before[-1] not in SIGNS or before[-1] != after[0]:
        return False
    is_prose = re.search(r"[a-z:] $", before[:-1]) or re.match(r" [a-z]|[.:,;]", after[1:])
    return before[-1] != "`" or not is_prose


def _sources() -> Iterator[tuple[str, str]]:
    return ((str(path_of(path)), path.read_text("utf-8")) for path in modules_in())


def test_no_text_is_quoted_by_hand() -> None:
    found = {file: list(quoted_by_hand(source)) for file, source in _sources() if not file.startswith(QUOTING)}
    assert {file: values for file, values in found.items() if values and file not in NOT_SQL} == {}
    assert {file for file in NOT_SQL if not found.get(file) and not is_of_removed_feature(file)} == set()


def test_nothing_is_escaped_elsewhere() -> None:
    found = {file: escapes(source) for file, source in _sources()}
    assert {file: lines for file, lines in found.items() if lines and not file.startswith(QUOTING)} == {}


def test_sql_is_read_by_regular_expressions_in_three_files() -> None:
    found = {file for file, source in _sources() if "re" in {module for module, _ in imports_of(source)}}
    assert len(READS_SQL) <= 3
    assert found == {file for file in (*READS_SQL, *READS_OTHER_TEXT) if not is_of_removed_feature(file)}


def test_impure_functions_of_spark_are_listed_once() -> None:
    rare = "monotonically_increasing_id", "input_file_block_start", "java_method"
    lists = {file for file, source in _sources() if any(name in source for name in rare)}
    assert lists == {"twofold_algebra/sql/impure_functions.py"}


@pytest.mark.parametrize(
    "source",
    [
        """f'"{name}"'""",
        """f"topic = '{name}'\"""",
        """f"s.`{name}` = 1\"""",
        """f"`{name}` IS NULL\"""",
        """f'SELECT max("{name}") AS n FROM t'""",
        """f"WHERE run = '{run[0]}' AND true\"""",
        """"to_regclass('{0}')".format(name)""",
        """f"SELECT '{{0}}' {more}\"""",
        """"`" + name + "`\"""",
    ],
)
def test_a_value_between_signs_of_quotation_is_found(source: str) -> None:
    assert list(quoted_by_hand(source))


@pytest.mark.parametrize(
    "source",
    [
        """f"{DUCKDB.name(name)} = {DUCKDB.literal(1)}\"""",
        """f"expected a number at `{column}`\"""",
        """f"`{path}` was written as a map\"""",
        """error(hint=f'Write F.to_json("{name}").')""",
        """raise ValueError(f"{kind} '{name}'")""",
    ],
)
def test_a_text_for_people_is_none(source: str) -> None:
    assert list(quoted_by_hand(source)) == []


@pytest.mark.parametrize(
    "source",
    ["""x.replace("'", "''")""", """x.replace('"', '""')""", """x.replace("'", "\\\\'")""", "y.replace('``', '`')"],
)
def test_an_escape_is_found(source: str) -> None:
    assert escapes(source) == [1]
