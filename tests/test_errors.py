import pytest

from newcomer.errors import InputError, MissingExtraError, NewcomerError, OptionError, shown, unknown_name


def test_input_error_names_file_line_problem_and_next_step():
    error = InputError("graph.tsv", "2 columns in 'a b'", 7, "mend the line")
    assert str(error) == "graph.tsv, line 7: 2 columns in 'a b'; mend the line"
    assert isinstance(error, NewcomerError) and error.exit_code == 2


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("dismult", "unknown decoder 'dismult'; did you mean 'distmult'? known: complex, distmult, transe"),
        ("zzz", "unknown decoder 'zzz'; known: complex, distmult, transe"),
    ],
)
def test_unknown_name_suggests_the_nearest(name, sentence):
    error = unknown_name("decoder", name, ["distmult", "transe", "complex"])
    assert isinstance(error, OptionError) and str(error) == sentence


def test_values_are_shown_on_one_short_line():
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 1000)) == 80 and shown("x" * 1000).endswith("...'")


def test_missing_extra_says_what_to_install():
    assert "pip install 'newcomer[rdf]'" in str(MissingExtraError("reading RDF", "pyoxigraph", "rdf"))
