"""A file that names entities."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import complaint, without_rights
from newcomer.data.split import read_names
from newcomer.errors import InputError
from newcomer.graph import Vocabulary

Put = Callable[[str, str | bytes], Path]
ENTITIES = Vocabulary(["a", "b c", "日本", " blank ", "two\u2028parts"])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_one_name_a_line_blank_lines_aside(put: Put, end: str, mark: str) -> None:
    text = mark + end.join(["日本", "", "  a\t", " blank ", "two\u2028parts", "b c"])
    assert read_names(put("names.txt", text), ENTITIES).tolist() == [2, 0, 3, 4, 1]
    assert read_names(put("names.txt.gz", gzip.compress(text.encode())), ENTITIES).tolist() == [2, 0, 3, 4, 1]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("a\n\nnobody\n", 3, "'nobody' is no entity of the graph"),
        (b"a\nb\xff\n", 2, "is not UTF-8"),
        ("", None, "names nobody"),
        (" \n\n", None, "names nobody"),
    ],
)
def test_a_file_that_names_no_entity_is_refused(put: Put, content: str | bytes, line: int | None, words: str) -> None:
    error = complaint(read_names, put("names.txt", content), ENTITIES)
    assert isinstance(error, InputError) and error.line == line and words in str(error)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "is a folder" in str(complaint(read_names, tmp_path, ENTITIES))
    assert "does not exist" in str(complaint(read_names, tmp_path / "missing", ENTITIES))
    assert "File name too long" in str(complaint(read_names, tmp_path / ("x" * 300), ENTITIES))


def test_no_permission(public_folder: Path) -> None:
    path = public_folder / "names.txt"
    path.write_text("a\n")
    path.chmod(0)
    with without_rights():
        assert "Permission denied" in str(complaint(read_names, path, ENTITIES))
