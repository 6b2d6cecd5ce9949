"""Learning to tell true triples from false ones: how false ones are made, what a classifier learns, how it is kept."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import complaint, make_dataset
from newcomer.evaluation.alignment import scorer_for
from newcomer.evaluation.classification import labelled, roc_auc
from newcomer.evaluation.measure import Evaluation, classify_test, classify_with_probabilities
from newcomer.graph import Graph, Ids, InductiveDataset, TripleArray, concatenate
from newcomer.models.bundle import Weights, read_bundle, write_bundle
from newcomer.models.serialisation import TRIPLE_CLASSIFIER, part_weights, triple_classifier_of
from newcomer.models.triple_classifier import (
    Features,
    PairFeatures,
    TripleClassifier,
    TripleClassifierScorer,
)
from newcomer.predictor import Predictor
from newcomer.training import triple_classifier as training
from newcomer.training.holdout import hold_out_newcomers
from newcomer.training.pipeline import Fitted, fit
from newcomer.training.triple_classifier import Corruption, corruption_of, learn_triple_classifier
from nn_oracle import one_thread
from training_world import choosing, citizen, parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
FOLDED = (*choosing("foldin"), "model.triple_classifier=yes", "training.epochs=1", "training.validate_every=1")


def town(people: int = 120) -> dict[str, list[tuple[str, str, str]]]:
    """Who lives in a city is a citizen of its country; both facts also stand the other way round."""
    rows = []
    for number in range(people):
        city, land, name = f"city{number % 12}", f"land{number % 12 % 4}", f"p{number:03}"
        rows += [(name, "lives_in", city), (city, "home_of", name), (city, "city_in", land), (land, "has_city", city)]
        if number % 5:
            rows += [(name, "citizen_of", land), (land, "has_citizen", name)]
    return {"train": rows}


def with_labels(dataset: InductiveDataset, seed: int = 0) -> InductiveDataset:
    rng = np.random.default_rng(seed)
    return replace(dataset, **{part: labelled(dataset, getattr(dataset, part), rng) for part in ("valid", "test")})


@cache
def fitted() -> tuple[InductiveDataset, Fitted]:
    dataset = with_labels(world())
    return dataset, fit(dataset, settings(*FOLDED), device="cpu")


@pytest.mark.parametrize(
    ("false", "heads", "type_constrained"),
    [
        ([("a", "r", "z"), ("b", "r", "z")], 0.0, True),  # tails are replaced, by those that r has
        ([("a", "r", "c"), ("b", "r", "a")], 0.0, False),
        ([("c", "r", "x"), ("c", "r", "y")], 1.0, True),
        ([("z", "r", "x"), ("z", "r", "y")], 1.0, False),
        ([("z", "r", "x"), ("a", "r", "c")], 0.5, False),
    ],
)
def test_how_triples_were_corrupted_shows_in_the_false_ones(false, heads, type_constrained):
    true = [("a", "r", "x"), ("b", "r", "y")]
    train = [("a", "s", "b"), ("c", "r", "w"), ("c", "r", "z"), ("y", "s", "x")]
    dataset = make_dataset(train=train, valid=[*true, *false])
    rows = dataset.valid.rows.tolist()
    named = [(dataset.entities[h], dataset.relations[r], dataset.entities[t]) for h, r, t in rows]
    labels = np.array([row in true for row in named], dtype=np.int8)
    valid = TripleArray(dataset.valid.heads, dataset.valid.relations, dataset.valid.tails, labels)
    assert corruption_of(replace(dataset, valid=valid)) == Corruption(heads, type_constrained)


def test_without_false_triples_nothing_tells_how_they_are_made():
    assert corruption_of(world()) is None
    dataset = world()
    valid = TripleArray(*dataset.valid.rows.T, np.ones(len(dataset.valid), dtype=np.int8))
    assert corruption_of(replace(dataset, valid=valid)) is None


def asked_of(dataset: InductiveDataset) -> tuple[TripleArray, np.ndarray]:
    """The citizenships that the town does not state, and as many wrong ones."""
    rows = [(f"p{number:03}", f"land{number % 12 % 4}", f"land{(number + 1) % 12 % 4}") for number in range(0, 120, 5)]
    id_of, relation = dataset.entities.id, dataset.relations.id("citizen_of")
    true = [(id_of(name), relation, id_of(land)) for name, land, _ in rows]
    false = [(id_of(name), relation, id_of(land)) for name, _, land in rows]
    return TripleArray.of([*true, *false]), np.repeat([True, False], len(rows))


def test_a_classifier_learns_what_goes_together_though_facts_have_twins():
    dataset = make_dataset(**town())
    classifier = learn_triple_classifier(dataset.observed, Corruption(0.0, type_constrained=True), seed=0)
    triples, probabilities = asked_of(dataset)
    scores = TripleClassifierScorer(classifier, dataset.observed).triple_scores(
        triples.heads, triples.relations, triples.tails
    )
    assert roc_auc(scores, probabilities) > 0.95


def learned(graph: Graph, seed: int) -> Weights:
    corruption = Corruption(0.5, type_constrained=False)
    return part_weights(TRIPLE_CLASSIFIER, learn_triple_classifier(graph, corruption, seed))


def test_the_same_seed_gives_the_same_classifier_whatever_was_drawn_before():
    graph = make_dataset(**town(40)).observed
    first = part_weights(
        TRIPLE_CLASSIFIER, learn_triple_classifier(graph, Corruption(0.5, type_constrained=False), seed=3)
    )
    torch.rand(7)
    state = torch.random.get_rng_state()
    again = part_weights(
        TRIPLE_CLASSIFIER, learn_triple_classifier(graph, Corruption(0.5, type_constrained=False), seed=3)
    )
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.keys() == again.keys() and all(np.array_equal(first[name], again[name]) for name in first)
    other = part_weights(
        TRIPLE_CLASSIFIER, learn_triple_classifier(graph, Corruption(0.5, type_constrained=False), seed=4)
    )
    assert not np.array_equal(
        first["triple_classifier.members.0.first.weight"], other["triple_classifier.members.0.first.weight"]
    )


def test_a_graph_of_one_pair_says_what_to_do():
    graph = make_dataset(train=[("a", "r", "b"), ("b", "r", "a")]).observed
    assert "set model.triple_classifier=false" in str(
        complaint(learn_triple_classifier, graph, Corruption(0.0, type_constrained=False), 0)
    )


def test_weights_of_another_number_of_relations_are_refused():
    weights = part_weights(TRIPLE_CLASSIFIER, TripleClassifier(3, 29))
    assert triple_classifier_of({}, 3) is None and triple_classifier_of(weights, 3) is not None
    assert "train the model again" in str(complaint(triple_classifier_of, weights, 4))


def test_a_model_keeps_its_triple_classifier_and_its_thresholds(tmp_path: Path):
    dataset, model = fitted()
    write_bundle(tmp_path / "m", model.bundle(dataset))
    bundle = read_bundle(tmp_path / "m")
    found = model.metrics["thresholds"]
    assert bundle.thresholds is not None and bundle.thresholds.overall == found["overall"] and not found["made_up"]
    assert found["triples"] == len(dataset.valid) // 2  # half of valid is drawn, and nobody is lost
    expected = learn_triple_classifier(model.dataset.observed, corruption_of(dataset), seed=0)
    assert part_weights(TRIPLE_CLASSIFIER, expected).keys() <= bundle.weights.keys()
    scorer, test = scorer_for(bundle, dataset), dataset.test
    scores = scorer.triple_scores(test.heads, test.relations, test.tails)
    known = concatenate([dataset.observed.triples, dataset.auxiliary.triples])
    graph = Graph.build(dataset.entities, dataset.relations, known)
    wanted = TripleClassifierScorer(expected, graph).triple_scores(test.heads, test.relations, test.tails)
    np.testing.assert_allclose(scores, wanted, atol=1e-5)


def test_verdicts_are_those_of_evaluation(tmp_path: Path):
    dataset, model = fitted()
    write_bundle(tmp_path / "m", model.bundle(dataset))
    bundle = read_bundle(tmp_path / "m")
    judged = classify_with_probabilities(Evaluation(bundle, dataset, torch.device("cpu")))
    predictor = Predictor(bundle)
    names, relations = dataset.entities, dataset.relations
    asked = [(names[h], relations[r], names[t]) for h, r, t in judged.result.triples.rows.tolist()]
    verdicts = predictor.classify(asked)
    np.testing.assert_allclose([one.score for one in verdicts], judged.result.scores, atol=1e-5)
    assert [one.is_true for one in verdicts] == judged.result.predicted.tolist()
    np.testing.assert_allclose([one.among_labelled for one in verdicts], judged.probabilities, atol=1e-5)
    assert all(one.calibrated for one in verdicts) and predictor.classify([]) == []
    assert verdicts[0] == predictor.classify(asked[:1])[0]


def test_a_verdict_goes_by_all_that_newcomers_tell(tmp_path: Path):
    dataset, model = fitted()
    write_bundle(tmp_path / "m", model.bundle(dataset))
    predictor = Predictor(read_bundle(tmp_path / "m"))
    before = predictor.classify([citizen("q0", 0)])[0]
    predictor.add([("zoe", "knows", "q0"), ("zoe", "citizen_of", "land0")])
    after = predictor.classify([citizen("q0", 0), ("zoe", "lives_in", "city0")])
    assert after[0].score != before.score and np.isfinite(after[1].score)


def test_without_validation_a_verdict_is_by_the_odds_of_the_classifier():
    dataset = with_labels(world())
    model = fit(dataset, settings(*FOLDED, "training.validation_rate=0"), device="cpu")
    assert model.model.triple_classifier is not None and "thresholds" not in model.metrics
    assert model.bundle(dataset).thresholds is None


def test_data_that_say_nothing_of_false_triples_have_no_triple_classifier():
    model = fit(world(), settings(*FOLDED), device="cpu")
    assert model.model.triple_classifier is None and not any(
        name.startswith("triple_classifier.") for name in model.bundle(world()).weights
    )
    assert model.metrics["thresholds"]["made_up"] and model.bundle(world()).thresholds is None


def test_thresholds_of_newcomers_are_used_for_them(tmp_path: Path):
    dataset, model = fitted()
    write_bundle(tmp_path / "m", model.bundle(dataset))
    bundle = read_bundle(tmp_path / "m")
    result = classify_test(Evaluation(bundle, dataset, torch.device("cpu")))
    assert result.thresholds.overall == model.metrics["thresholds"]["overall"]
    assert len(parts()["test"]) * 2 == len(result.triples)


@pytest.mark.parametrize("changes", [(), ("model.encoder=mean", "model.answers_by_input=yes")])
def test_a_networks_verdicts_go_by_its_probabilities(tmp_path: Path, changes):
    dataset = with_labels(world())
    model = fit(dataset, settings(*changes), device="cpu")
    write_bundle(tmp_path / "m", model.bundle(dataset))
    bundle = read_bundle(tmp_path / "m")
    assert (
        model.model.triple_classifier is None
        and bundle.thresholds is None
        and not model.metrics["thresholds"]["made_up"]
    )
    case = Evaluation(bundle, dataset, torch.device("cpu"))
    judged = classify_with_probabilities(case)
    assert case.thresholds_from == "probabilities" and judged.probabilities is not None
    assert judged.result.predicted.tolist() == [probability >= 0.5 for probability in judged.probabilities]
    assert judged.result.interval.low <= judged.result.metrics()["accuracy"] <= judged.result.interval.high
    assert classify_test(case).metrics() == judged.result.metrics()
    asked = [
        (dataset.entities[h], dataset.relations[r], dataset.entities[t])
        for h, r, t in judged.result.triples.rows.tolist()
    ]
    verdicts = Predictor(bundle).classify(asked)
    np.testing.assert_allclose([one.among_labelled for one in verdicts], judged.probabilities, atol=1e-5)
    assert [one.is_true for one in verdicts] == judged.result.predicted.tolist()
    # The scores' own thresholds can still be asked for.
    by_scores = classify_test(replace(case, thresholds="newcomers"))
    assert by_scores.thresholds.overall == model.metrics["thresholds"]["overall"]
    assert not np.array_equal(by_scores.scores, judged.result.scores)


def test_nothing_along_a_relation_that_the_model_lacks_is_true(tmp_path: Path):
    dataset = with_labels(world())
    write_bundle(tmp_path / "m", fit(dataset, settings(*FOLDED), device="cpu").bundle(dataset))
    extra = [("q0", "likes", "p00"), ("q1", "likes", "p01")]
    other = with_labels(world(test=[*parts()["test"], *extra]))
    case = Evaluation(read_bundle(tmp_path / "m"), other, torch.device("cpu"), thresholds="probabilities")
    found = classify_with_probabilities(case).result
    unknown = found.triples.relations == other.relations.id("likes")
    assert unknown.any() and not found.predicted[unknown].any() and found.predicted[~unknown].any()


def test_probabilities_that_nobody_calibrated_say_what_to_do(tmp_path: Path):
    dataset = with_labels(world())
    write_bundle(tmp_path / "m", fit(dataset, settings("training.validation_rate=0"), device="cpu").bundle(dataset))
    case = Evaluation(read_bundle(tmp_path / "m"), dataset, torch.device("cpu"), thresholds="probabilities")
    assert "pass --thresholds valid, or train it again" in str(complaint(classify_test, case))


def test_no_observed_fact_is_an_example_of_false(monkeypatch):
    made, inner = [], training._corrupted

    def watched(asked: TripleArray, observed: Graph, *rest: Any) -> TripleArray:
        made.append((len(asked), observed, inner(asked, observed, *rest)))
        return made[-1][-1]

    monkeypatch.setattr(training, "_corrupted", watched)
    learn_triple_classifier(make_dataset(**town(40)).observed, Corruption(0.5, type_constrained=True), seed=0)
    assert any(len(false) < count for count, _, false in made), "some draws did happen to be facts"
    for _, observed, false in made:
        assert len(false) and not observed.contains(false.heads, false.relations, false.tails).any()


def test_no_fact_links_the_ends_of_a_true_example(monkeypatch):
    asked = []

    class Watched(PairFeatures):
        def __init__(self, graph: Graph) -> None:
            super().__init__(graph)
            self.graph = graph

        def of(self, heads: Ids, tails: Ids) -> Features:
            asked.append((self.graph, heads[: len(heads) // 2].tolist(), tails[: len(tails) // 2].tolist()))
            return super().of(heads, tails)

    monkeypatch.setattr(training, "PairFeatures", Watched)
    learn_triple_classifier(make_dataset(**town(40)).observed, Corruption(0.5, type_constrained=True), seed=0)
    assert len(asked) > 1
    for graph, heads, tails in asked:
        tied = {frozenset(row) for row in graph.triples.rows[:, ::2].tolist()}
        assert heads and not any(frozenset(pair) in tied for pair in zip(heads, tails, strict=True))


def test_thresholds_are_found_without_knowing_what_is_asked(monkeypatch):
    known = []

    class Watched(TripleClassifierScorer):
        def __init__(self, classifier: TripleClassifier, facts: Graph) -> None:
            super().__init__(classifier, facts)
            known.append(facts)

    monkeypatch.setattr("newcomer.training.phases.TripleClassifierScorer", Watched)
    dataset, config = with_labels(world()), settings(*FOLDED)
    fit(dataset, config, device="cpu")
    exam = hold_out_newcomers(dataset, config).dataset
    true = exam.test.positives
    assert len(known) == 1 and len(true) > 0
    assert not known[0].contains(true.heads, true.relations, true.tails).any()
