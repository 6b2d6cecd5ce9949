"""The picture of a newcomer shows its facts, what rules add and the best answers, each once and none over another."""

from pathlib import Path

import pytest

from conftest import complaint
from newcomer.predictor import Predictor
from newcomer.predictor.draw import ANSWER, KNOWN, MOST, VIRTUAL, Scene, draw, scene
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
FACTS = [("zoe", "lives_in", "city1"), ("zoe", "knows", "p03"), ("yan", "knows", "zoe")]


@pytest.fixture(scope="module")
def model() -> Predictor:
    dataset = world()
    made = Predictor(fit(dataset, settings("model.ensemble=yes"), threads=1).bundle(dataset))
    made.add([*FACTS, *(("hub", "knows", f"p{i:02}") for i in range(MOST + 3))])
    return made


def test_a_scene_has_the_facts_the_inferred_and_the_best_of_the_rest(model):
    found = scene(model, "zoe", top=3)
    assert {edge.fact for edge in found.known} == set(FACTS)
    neighbors = {one.fact: one for one in model.neighbors("zoe") if one.virtual}
    answers = {edge.fact for edge in found.answers}
    assert {edge.fact for edge in found.virtual} == set(neighbors) - answers
    others = [fact[2] if fact[0] == "zoe" else fact[0] for fact in (edge.fact for edge in found.answers)]
    assert len(set(others)) == len(others) == 3 and not {"city1", "p03", "yan"} & set(others)
    suggested = [one for one in model.suggest("zoe", 30) if one.fact in answers]
    assert [(edge.fact, edge.probability) for edge in found.answers] == [
        (one.fact, one.probability) for one in suggested
    ]


def test_what_there_is_no_room_for_is_counted(model):
    found = scene(model, "hub")
    assert len(found.known) == MOST and found.more[0] == 3


def test_reasons_are_the_best_ones(model):
    found = scene(model, "zoe", top=3)
    told = {one.fact: one.because for one in model.suggest("zoe", 30)}
    [home] = [edge for edge in found.answers if edge.fact == ("zoe", "citizen_of", "land1")]
    assert home.because == "because zoe lives_in city1 and city1 city_in land1"
    others = [edge for edge in found.answers if told[edge.fact].reasons[0].feature != "rules"]
    assert others and all(edge.because == str(told[edge.fact]) for edge in others)


def drawn_texts(found: Scene, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """All texts of a picture with where they stand."""
    from matplotlib.figure import Figure

    kept: list[tuple[str, object]] = []
    save = Figure.savefig

    def saved(figure: Figure, *arguments: object, **options: object) -> None:
        save(figure, *arguments, **options)
        kept.extend((text.get_text(), text.get_window_extent()) for text in figure.axes[0].texts)
        assert all(extent.x1 <= figure.bbox.x1 for _, extent in kept), [
            (t, e.x1) for t, e in kept if e.x1 > figure.bbox.x1
        ]

    monkeypatch.setattr(Figure, "savefig", saved)
    draw(found, path)
    return kept


@pytest.mark.parametrize("entity", ["zoe", "hub", "p03"])
def test_no_text_lies_over_another_or_leaves_the_picture(model, entity, tmp_path, monkeypatch):
    found = scene(model, entity)
    texts = drawn_texts(found, tmp_path / "one.png", monkeypatch)
    boxes = len(found.known) + len(found.virtual) + len(found.answers)
    assert len(texts) >= 2 * boxes + 2 and entity in [text for text, _ in texts]
    for place, (text, extent) in enumerate(texts):
        assert not any(extent.overlaps(other) for _, other in texts[:place]), text
        assert extent.x0 >= 0 and extent.y0 >= 0, text


def test_every_kind_of_line_is_explained_and_has_a_look_of_its_own(model, tmp_path, monkeypatch):
    from matplotlib.patches import FancyArrowPatch

    looks: list[tuple[object, str]] = []
    made = FancyArrowPatch.__init__

    def noted(arrow: FancyArrowPatch, *arguments: object, **options: object) -> None:
        looks.append((options["color"], str(options["linestyle"])))
        made(arrow, *arguments, **options)

    monkeypatch.setattr(FancyArrowPatch, "__init__", noted)
    found = scene(model, "zoe")
    assert any(edge.fact in {one.fact for one in model.neighbors("zoe") if one.virtual} for edge in found.answers)
    texts = [text for text, _ in drawn_texts(found, tmp_path / "a.png", monkeypatch)]
    assert {style.meaning for style in (KNOWN, VIRTUAL, ANSWER)} <= set(texts)
    counts = [looks.count((style.colour, str(style.dashes))) for style in (KNOWN, VIRTUAL, ANSWER)]
    assert counts == [1 + len(part) for part in (found.known, found.virtual, found.answers)]


def test_long_names_are_cut_and_signs_are_plain(model, tmp_path, monkeypatch):
    long = "a very long name of somebody who has " + "many " * 10 + "$x_1$"
    other = model.copy()
    other.add([(long, "lives_in", "city1"), ("$y^2$", "knows", long)])
    texts = [text for text, _ in drawn_texts(scene(other, long), tmp_path / "long.png", monkeypatch)]
    assert long not in texts and any(text.endswith("...") for text in texts) and "$y^2$" in texts


def test_letters_that_the_font_lacks_are_drawn_in_silence(model, tmp_path):
    other = model.copy()
    other.add([("👩", "lives_in", "city1")])
    draw(scene(other, "👩"), tmp_path / "a.png")  # a warning is an error here


def test_the_same_scene_is_the_same_picture(model, tmp_path):
    for name in ("a.png", "b.png"):
        draw(scene(model, "zoe"), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_strange_kind_of_picture_or_number_is_refused(model, tmp_path):
    assert "unknown kind of picture 'bmpx'" in str(complaint(draw, scene(model, "zoe"), tmp_path / "a.bmpx"))
    assert list(tmp_path.iterdir()) == []
    assert "at least 1" in str(complaint(scene, model, "zoe", 0))
