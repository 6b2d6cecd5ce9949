"""Reading options: what is refused, and what column titles mean."""

import pytest

from conftest import complaint
from newcomer.data.options import ReadOptions, columns_from_header, parse_delimiter


@pytest.mark.parametrize("delimiter", ["", "ab", "\n", "\r", '"', "\0", "\udcff"])
def test_a_delimiter_is_one_character_that_can_stand_in_a_line(delimiter: str) -> None:
    assert str(complaint(ReadOptions, delimiter=delimiter)).startswith("delimiter ")


@pytest.mark.parametrize("quote", ["", "''", "\n", " ", "\t", "\0", ";"])
def test_a_quote_is_one_character_other_than_the_delimiter(quote: str) -> None:
    assert str(complaint(ReadOptions, quote=quote, delimiter=";")).startswith("quote ")


def test_a_wrong_choice_names_the_nearest_right_one() -> None:
    assert "did you mean 'skip'?" in str(complaint(ReadOptions, on_bad_line="skp"))
    assert "did you mean 'keep'?" in str(complaint(ReadOptions, literals="kep"))
    assert "did you mean 'head'?" in str(complaint(ReadOptions, columns=("had", "relation", "tail")))


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        (("head", "tail"), "'relation' once"),
        (("head", "head", "relation", "tail"), "'head' once"),
        (("head", "relation", "tail", "label", "label"), "'label' more than once"),
    ],
)
def test_columns_name_head_relation_and_tail_once(columns: tuple[str, ...], missing: str) -> None:
    assert missing in str(complaint(ReadOptions, columns=columns))


def test_delimiters_may_be_given_by_word() -> None:
    words = ("tab", "TAB", "\\t", "comma", "semicolon", "pipe", "space", "#")
    assert [parse_delimiter(word) for word in words] == ["\t", "\t", "\t", ",", ";", "|", " ", "#"]


def test_titles_name_columns_in_any_order_and_case() -> None:
    assert columns_from_header([" Object", "id", "SUBJECT", "predicate "]) == ("tail", "_", "head", "relation")
    assert columns_from_header(["h", "r", "t", "y"]) == ("head", "relation", "tail", "label")


@pytest.mark.parametrize("titles", [["head", "relation"], ["head", "subject", "relation", "tail"], ["a", "b", "c"]])
def test_titles_that_leave_a_doubt_are_no_header(titles: list[str]) -> None:
    assert columns_from_header(titles) is None


def test_two_label_titles_leave_a_doubt() -> None:
    assert columns_from_header(["h", "r", "t", "label", "truth"]) is None
