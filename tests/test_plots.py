"""Pictures of a data set."""

import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import complaint, make_dataset
from newcomer.data import plots
from newcomer.data.plots import plot_description
from newcomer.errors import MissingExtraError
from newcomer.graph import InductiveDataset

DATASET = make_dataset(
    train=[("a", "r", "b"), ("b", "r", "c"), ("a", "s", "c")],
    aux=[("n", "r", "a"), ("n", "s", "b")],
    test=[("n", "r", "c")],
)
BEGINNINGS = {".png": b"\x89PNG\r\n\x1a\n", "": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF", ".svg": b"<?xml"}


@pytest.mark.parametrize("suffix", BEGINNINGS)
def test_a_picture_is_written_in_the_format_of_its_ending(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "new" / f"picture{suffix}"
    plot_description(DATASET, path)
    content = path.read_bytes()
    assert content.startswith(BEGINNINGS[suffix]) and len(content) > 5000
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_png_is_whole(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    plot_description(DATASET, tmp_path / "picture.png")
    height, width, _ = pyplot.imread(tmp_path / "picture.png").shape
    assert width > height > 400
    assert pyplot.get_fignums() == []


def test_names_are_not_taken_for_formulas_and_newcomers_need_not_exist(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    graph = make_dataset(train=[("a", "r", "b")])
    odd = InductiveDataset(r"cost in $ of $\frac{a}", graph.observed, graph.auxiliary, graph.valid, graph.test)
    plot_description(odd, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").exists()


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    assert "unknown kind of picture 'pgn'; did you mean 'png'?" in str(
        complaint(plot_description, DATASET, tmp_path / "picture.pgn")
    )
    assert list(tmp_path.iterdir()) == [] and pyplot.get_fignums() == []


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = complaint(plot_description, DATASET, tmp_path / "picture.png")
    assert isinstance(error, MissingExtraError) and "pip install 'newcomer[plots]'" in str(error)


def test_a_degree_nobody_has_counts_those_with_more() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    cbook = pytest.importorskip("matplotlib.cbook")
    figure, axes = pyplot.subplots()
    plots._degrees(axes, np.array([1, 1, 4], dtype=np.int32), "entities", "black")
    line = axes.get_lines()[0]
    assert line.get_drawstyle() == "steps-pre"
    x, y = cbook.STEP_LOOKUP_MAP[line.get_drawstyle()](*line.get_data())
    pyplot.close(figure)
    drawn = list(zip(x, y, strict=True))
    assert (1, 3) in drawn and (4, 1) in drawn and (4, 3) not in drawn  # one entity has at least 2, 3 and 4 facts
