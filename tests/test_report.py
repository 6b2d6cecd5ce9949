"""A trained model measured on a data set: the right scores by name, figures that follow from them, and the report.

Covers newcomer.evaluation.reliability, newcomer.evaluation.stored, newcomer.evaluation.ranking.
"""

import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from conftest import complaint, make_dataset
from newcomer.config import config_hash, load_preset, with_overrides
from newcomer.data.cut import CutDataset, FactsCut
from newcomer.errors import DatasetError, InputError, MissingExtraError, OptionError
from newcomer.evaluation import plots as evaluation_plots
from newcomer.evaluation.alignment import Alignment, rule_scorer_for, scorer_for
from newcomer.evaluation.calibration import calibration_error
from newcomer.evaluation.classification import RelationThresholds, classify, labelled
from newcomer.evaluation.measure import (
    TASKS,
    Evaluation,
    check_same_data,
    classify_test,
    classify_with_probabilities,
    compare_classifications,
    compare_rankings,
    default_task,
    headline,
    metric_task,
    outside_headline,
    rank_test,
)
from newcomer.evaluation.metrics import paired_bootstrap
from newcomer.evaluation.plots import (
    PICTURES,
    plot_commands,
    plot_ranking,
    plot_reliability,
    plot_suggestions,
    rank_bins,
    rank_shares,
)
from newcomer.evaluation.ranking import RankingProtocol, RankingResult, ceiling, evaluate_under, queries_of
from newcomer.evaluation.report import (
    classification_report,
    model_name,
    ranking_report,
    result_path,
    suggestion_report,
    write_ranks,
    write_report,
)
from newcomer.evaluation.suggest import (
    SHOWN,
    Suggested,
    by_known_facts,
    by_relation,
    recall_at,
    suggestion_figures,
    suggestion_test,
)
from newcomer.evaluation.verbs import bands_of
from newcomer.graph import Graph, Ids, InductiveDataset, Overlay, TripleArray, Vocabulary, concatenate
from newcomer.models.bundle import RESULTS, Bundle, dataset_hash, read_bundle, write_bundle
from newcomer.models.engine import InferenceEngine, SnapshotScorer, StoredNewcomers
from newcomer.predictor import Predictor
from newcomer.rules.ranking import RuleRanker, RuleScorer
from newcomer.training.pipeline import Fitted, fit
from nn_oracle import one_thread
from training_world import citizen, parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET = world()
CPU = torch.device("cpu")
KNOWN = RankingProtocol()


@cache
def trained(*changes: str) -> tuple[Fitted, Bundle]:
    fitted = fit(DATASET, settings("training.epochs=1", *changes), device="cpu")
    with TemporaryDirectory() as folder:
        write_bundle(Path(folder) / "m", fitted.bundle(DATASET))
        return fitted, read_bundle(Path(folder) / "m")


def evaluation(*changes: str, dataset: InductiveDataset = DATASET, seed: int = 0) -> Evaluation:
    return Evaluation(trained(*changes)[1], dataset, CPU, 1, seed)


def every_query(dataset: InductiveDataset) -> tuple[Ids, Ids]:
    size = 2 * len(dataset.relations)
    asked: Ids = np.arange(len(dataset.entities) * size, dtype=np.int32)
    return asked // size, asked % size


def full_graph() -> Graph:
    """The data set's own facts and one more about a newcomer."""
    more = [(DATASET.entities.id("q0"), DATASET.relations.id("citizen_of"), DATASET.entities.id("land2"))]
    return Graph.build(
        DATASET.entities, DATASET.relations, concatenate([DATASET.known().triples, TripleArray.of(more)])
    )


def shuffled(dataset: InductiveDataset, names: dict[str, str] | None = None) -> InductiveDataset:
    """The same data with other ids, some entities under other names."""
    rng, names = np.random.default_rng(5), names or {}
    seen, size, relations = int(dataset.is_seen.sum()), len(dataset.entities), len(dataset.relations)
    entity = np.concatenate([rng.permutation(seen), seen + rng.permutation(size - seen)]).astype(np.int32)
    relation = rng.permutation(relations).astype(np.int32)
    called = [names.get(name, name) for name in dataset.entities.names_of(np.argsort(entity))]
    vocabularies = Vocabulary(called), Vocabulary(dataset.relations.names_of(np.argsort(relation)))

    def moved(t: TripleArray) -> TripleArray:
        return TripleArray(entity[t.heads], relation[t.relations], entity[t.tails], t.labels)

    observed, auxiliary = (Graph.build(*vocabularies, moved(g.triples)) for g in (dataset.observed, dataset.auxiliary))
    return InductiveDataset(dataset.name, observed, auxiliary, moved(dataset.valid), moved(dataset.test))


def by_name(dataset: InductiveDataset, scorer: Any, renamed: dict[str, str] | None = None) -> dict[Any, float]:
    """Every score with the names of query and answer."""
    names, size = list(dataset.entities), len(dataset.relations)
    back = {new: old for old, new in (renamed or {}).items()}
    names = [back.get(name, name) for name in names]
    relations = [*dataset.relations, *(f"{name} of" for name in dataset.relations)]
    entities, asked = every_query(dataset)
    assert len(relations) == 2 * size
    rows = scorer.scores(entities, asked).tolist()
    return {
        (names[e], relations[r], names[a]): score
        for e, r, row in zip(entities.tolist(), asked.tolist(), rows, strict=True)
        for a, score in enumerate(row)
    }


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("model.encoder=mean",),
        ("model.encoder=lan", "model.decoder=complex"),
        ("protocol=refreshed", "rules.kinds=one,two,both,constant,exists"),
        ("protocol=transductive",),
        ("model.labels=none",),
        ("model.constrained=no",),
        ("model.constrained=yes",),
    ],
    ids=" ".join,
)
def test_the_scores_are_those_of_the_model_in_its_protocol(changes):
    fitted, bundle = trained(*changes, "model.ensemble=no")
    expected, found, queries = asked_of(fitted), scorer_for(bundle, DATASET, CPU, threads=1), every_query(DATASET)
    assert found.scores(*queries).tobytes() == expected.scores(*queries).tobytes()
    columns = DATASET.test.heads, DATASET.test.relations, DATASET.test.tails
    assert np.array_equal(found.triple_scores(*columns), expected.triple_scores(*columns))
    assert found.embedding is None


def asked_of(fitted: Fitted, embedding_only: bool = False) -> SnapshotScorer:
    """The fitted model asked about the newcomers of the data set."""
    engine = InferenceEngine(fitted.model, StoredNewcomers(fitted.dataset.auxiliary.triples), threads=1)
    return SnapshotScorer(engine, engine.initial, embedding_only)


def rule_scorer(fitted: Fitted) -> RuleScorer:
    return RuleScorer(RuleRanker.of(fitted.model.rules), Overlay.of_dataset(DATASET))


def test_where_rules_have_a_say_the_answer_is_that_of_both():
    fitted, bundle = trained("model.ensemble=yes")
    network, ranker = asked_of(fitted, embedding_only=True), rule_scorer(fitted)
    assert fitted.model.weights is not None
    both, found, queries = asked_of(fitted), scorer_for(bundle, DATASET), every_query(DATASET)
    assert np.array_equal(found.scores(*queries), both.scores(*queries))
    columns = DATASET.test.heads, DATASET.test.relations, DATASET.test.tails
    assert np.array_equal(found.triple_scores(*columns), both.triple_scores(*columns))
    assert found.embedding is not None and np.array_equal(found.embedding.scores(*queries), network.scores(*queries))
    measured = evaluation("model.ensemble=yes")
    ranked = rank_test(measured, KNOWN, with_parts=True)
    assert ranking_report(measured, ranked)["embedding"][0]["metrics"]["mr"] == ranked.embedding[0].ranks.mean()
    for results, scorer in ((ranked.model, both), (ranked.embedding, network), (ranked.rules, ranker)):
        assert np.array_equal(results[0].ranks, evaluate_under(DATASET, scorer, [KNOWN])[0].ranks)
    assert rank_test(measured, KNOWN).embedding == []
    assert rank_test(evaluation("model.ensemble=no"), KNOWN, with_parts=True).embedding == []


@pytest.mark.parametrize(
    "changes",
    [("model.ensemble=no",), ("training.final_fit=no",), ("protocol=transductive",), ("model.ensemble=yes",)],
    ids=" ".join,
)
def test_names_decide_and_not_ids(changes):
    _, bundle = trained(*changes)
    other = shuffled(DATASET)
    assert list(other.entities) != list(DATASET.entities) and list(other.relations) != list(DATASET.relations)
    for build in (scorer_for, rule_scorer_for):
        found, expected = (by_name(data, build(bundle, data)) for data in (other, DATASET))  # type: ignore[operator]
        assert found == pytest.approx(expected, abs=1e-5)  # sums are taken in another order


def test_a_newcomer_the_model_never_heard_of_is_embedded_by_its_facts():
    _, bundle = trained("rules.paths=no", "model.ensemble=no")  # walks are drawn by id, and a new name has a new one
    renamed = {f"q{i}": f"zz{i}" for i in range(4)}
    other = shuffled(DATASET, renamed)
    found, expected = (
        by_name(dataset, scorer_for(bundle, dataset), names) for dataset, names in ((other, renamed), (DATASET, {}))
    )
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, abs=1e-5)


def test_in_the_world_of_a_model_without_final_fit_those_held_out_are_newcomers():
    fitted, bundle = trained("training.final_fit=no")
    seen = Alignment.of(bundle, DATASET)
    facts = Graph.build(seen.observed.entities, seen.observed.relations, seen.facts)
    known, trained_on = set(DATASET.known_facts().named()), set(bundle.observed.named())
    assert set(seen.observed.named()) == trained_on < known
    assert set(facts.named()) == known - trained_on
    held_out = {fitted.dataset.entities[int(e)] for e in fitted.dataset.newcomers}
    newcomers = {name for fact in facts.named() for name in fact[::2]}
    assert held_out and held_out < newcomers
    assert seen.observed.entities.names_of(seen.entities) == list(DATASET.entities)
    assert list(seen.observed.entities)[: len(bundle.observed.entities)] == list(bundle.observed.entities)


def test_of_a_relation_that_the_model_lacks_it_says_nothing():
    more = world(test=[*parts()["test"], ("q0", "likes", "p00")])
    found = evaluation(dataset=more)
    scorer, likes = scorer_for(found.bundle, more), more.relations.id("likes")
    entities = np.array([more.entities.id("q0"), more.entities.id("q1")], dtype=np.int32)
    both = scorer.scores(entities, np.array([likes, 0], dtype=np.int32))
    assert not both[0].any() and both[1].any()
    assert np.array_equal(both[1], scorer.scores(entities[1:], np.array([0], dtype=np.int32))[0])
    assert not scorer.scores(entities, np.array([likes, likes + len(more.relations)], dtype=np.int32)).any()
    triples = scorer.triple_scores(entities, np.array([likes, 0], dtype=np.int32), entities)
    assert triples[0] == 0 and triples[1] != 0
    ranked = rank_test(found, KNOWN)
    assert ranked.unknown == 1
    assert ranking_report(found, ranked)["unknown_relation_queries"] == 1
    asked = ranked.model[0]
    assert asked.ranks[-1] == (asked.candidates[-1] + 1) / 2


def test_data_of_another_kind_is_refused():
    other = make_dataset(train=[("a", "r", "b")], aux=[("n", "r", "a")], test=[("n", "r", "b")])
    assert "knows none of the relations of made" in str(complaint(scorer_for, trained()[1], other))


def test_ranks_are_those_of_each_question_by_itself():
    found = evaluation()
    scorer, queries = scorer_for(found.bundle, DATASET), queries_of(DATASET)
    protocols = [RankingProtocol(filter="full", candidates="seen"), RankingProtocol(filter="known", candidates="seen")]
    expected = evaluate_under(DATASET, scorer, protocols, full_graph(), queries)
    ranked = rank_test(found, protocols[0], full_graph(), with_parts=True)
    assert [r.protocol for r in ranked.model] == protocols == [r.protocol for r in ranked.rules]
    for mine, other in zip(ranked.model, expected, strict=True):
        assert np.array_equal(mine.ranks, other.ranks) and np.array_equal(mine.candidates, other.candidates)
        assert np.array_equal(mine.queries.triple, queries.triple)
    assert ranked.unknown == 0


def test_the_rules_alone_answer_as_without_a_model():
    fitted = trained()[0]
    ranker = rule_scorer(fitted)
    expected = evaluate_under(DATASET, ranker, [KNOWN])[0]
    assert np.array_equal(rank_test(evaluation(), KNOWN, with_parts=True).rules[0].ranks, expected.ranks)
    assert expected.ranks.max() < 3  # who lives in a city is a citizen of its land
    assert rank_test(evaluation("rules.kinds="), KNOWN, with_parts=True).rules == []
    assert rank_test(evaluation(), KNOWN).rules == []


def test_the_full_filter_needs_a_full_graph():
    assert "name it with --full-graph" in str(complaint(rank_test, evaluation(), RankingProtocol(filter="full")))


def test_questions_about_seen_entities_stand_apart():
    test = [*parts()["test"], ("p00", "citizen_of", "land0")]
    mixed = evaluation(dataset=world(test=test, valid=[citizen("p04", 4)]))
    ranked = rank_test(mixed, KNOWN, mixed.dataset.known())
    asked, rest = headline(ranked.model[0]), outside_headline(ranked.model[0])
    assert (len(ranked.model[0].queries), len(asked.queries), len(rest.queries)) == (6, 4, 2)
    report = ranking_report(mixed, ranked)
    assert report["queries"] == 4 and report["metrics"]["mr"] == pytest.approx(ranked.model[0].ranks[:4].mean())
    assert report["also"]["queries"] == 4 and report["also"]["metrics"] == report["metrics"]
    assert [(part["filter"], part["queries"]) for part in report["seen"]] == [("known", 2), ("full", 2)]
    only_seen = evaluation(dataset=world(test=[("p00", "citizen_of", "land0")], valid=[]))
    ranked = rank_test(only_seen, KNOWN)
    assert len(headline(ranked.model[0]).queries) == 2 and len(outside_headline(ranked.model[0]).queries) == 0
    report = ranking_report(only_seen, ranked)
    assert report["queries"] == 2 and report["seen"] == []


CORE = ["task", "dataset", "model", "protocol", "filter", "candidates", "seed", "metrics"]


def test_the_report_of_a_ranking():
    found, full = evaluation("seed=3", "protocol=refreshed"), full_graph()
    ranked = rank_test(found, RankingProtocol(filter="full"), full, with_parts=True)
    report = ranking_report(found, ranked, ["facts", "linked"], full, 1.26)
    assert list(report)[: len(CORE)] == CORE
    values = ("link-prediction", "made", "vn", "refreshed", "full", "all", 3)
    assert tuple(report[name] for name in CORE[:-1]) == values
    assert set(report["metrics"]) == {"mr", "mrr", "hits@1", "hits@3", "hits@10"}
    assert report["metrics"]["mrr"] == pytest.approx((1 / ranked.model[0].ranks).mean())
    assert report["also"]["filter"] == "known"
    assert report["also"]["metrics"]["mr"] == pytest.approx(ranked.model[1].ranks.mean())
    assert report["also"]["metrics"]["mr"] >= report["metrics"]["mr"]
    for name, interval in report["intervals"].items():
        assert interval["low"] <= report["metrics"][name] <= interval["high"] and interval["level"] == 0.95
    best = ceiling(DATASET, full, queries=ranked.model[0].queries)
    assert report["ceiling"]["metrics"] == {name: best[name] for name in report["metrics"]}
    assert best["mrr"] == (3 + 0.75) / 4  # one of four questions has a second true answer
    assert [part["filter"] for part in report["rules"]] == ["full", "known"]
    for part, result in ((report, ranked.model[0]), (report["also"], ranked.model[1])):
        groups = [row for row in part["breakdowns"] if row["by"] == "linked"]
        assert {row["by"] for row in part["breakdowns"]} == {"facts", "linked"}
        assert sum(row["queries"] * row["mr"] for row in groups) == pytest.approx(result.ranks.sum())
    assert report["dataset_sha256"] == report["trained_on_sha256"] == dataset_hash(DATASET)
    assert report["config_sha256"] == config_hash(found.bundle.config)
    assert (report["device"], report["seconds"], report["queries"]) == ("cpu", 1.3, 4)
    assert set(report["versions"]) == {"newcomer", "python", "numpy", "torch"}
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    again = ranking_report(found, rank_test(found, RankingProtocol(filter="full"), full, with_parts=True), (), full)
    assert again["intervals"] == report["intervals"] and again["breakdowns"] == again["also"]["breakdowns"] == []


def test_without_a_full_graph_nothing_is_said_of_it():
    report = ranking_report(evaluation(), rank_test(evaluation(), KNOWN))
    assert report["also"] is None and report["ceiling"] is None and report["rules"] == []


FULL = RankingProtocol(filter="full")
BLENDED = ("model.ensemble=yes", "model.constrained=no")
FIGURES = ("metrics", "intervals", "queries", "embedding", "rules", "breakdowns", "calibration")


def figures(report: dict[str, Any]) -> dict[str, Any]:
    """What was measured, without under which filter that was."""
    found = {name: report[name] for name in FIGURES}
    for part in ("embedding", "rules"):
        found[part] = [row | {"filter": None} for row in found[part][:1]]
    found["breakdowns"] = [
        {name: value for name, value in row.items() if not name.startswith("ceiling")} for row in found["breakdowns"]
    ]
    return found


def by_hand(cut: CutDataset) -> InductiveDataset:
    """The data set as if it had been written with the facts that are kept."""
    names = list(cut.entities)
    kept = [(names[h], cut.relations[r], names[t]) for h, r, t in cut.auxiliary.triples.rows.tolist()]
    return world(aux=kept)


@pytest.mark.parametrize("changes", [(), BLENDED], ids=["network", "blended"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_newcomers_cut_to_one_fact_are_those_of_data_written_so(changes, seed):
    found = replace(evaluation(*changes), cut=FactsCut(1, seed))
    expected = evaluation(*changes, dataset=by_hand(FactsCut(1, seed).of(DATASET)))
    # By hand the filter lacks what is withheld, and gets it back with the graph of all that is true.
    reports = [
        ranking_report(one, rank_test(one, protocol, full, with_parts=True), ["facts", "linked"])
        for one, protocol, full in ((found, KNOWN, None), (expected, FULL, DATASET.known()))
    ]
    assert figures(reports[0]) == figures(reports[1])
    assert [row["group"] for row in reports[0]["breakdowns"] if row["by"] == "facts"] == ["1"]
    assert reports[0]["known_facts"] == {"most": 1, "seed": seed, "kept": 4, "withheld": 4}
    assert reports[0]["dataset_sha256"] == reports[0]["trained_on_sha256"]


def test_a_cut_that_withholds_nothing_changes_nothing():
    reports = [
        ranking_report(one, rank_test(one, KNOWN, with_parts=True))
        for one in (evaluation(*BLENDED), *(replace(evaluation(*BLENDED), cut=FactsCut(most, 1)) for most in (1, 2)))
    ]
    assert reports[0]["known_facts"] is None and reports[2]["known_facts"]["withheld"] == 0
    assert figures(reports[2]) == figures(reports[0])
    assert reports[1]["known_facts"]["withheld"] == 4
    assert (
        reports[1]["calibration"]["shown"]["probability_after"]
        != reports[0]["calibration"]["shown"]["probability_after"]
    )


def test_a_withheld_fact_is_no_wrong_answer():
    """q0 is known as a citizen of land1 and asked for another country: of land1 the filter knows in any case."""
    known = ("q0", "citizen_of", "land1")
    dataset = world(aux=[*parts()["aux"], known])
    ids = dataset.entities.id("q0"), dataset.relations.id("citizen_of"), dataset.entities.id("land1")
    cuts = [FactsCut(1, seed) for seed in range(10)]
    cut = next(one for one in cuts if list(ids) in one.of(dataset).withheld.rows.tolist())
    whole, fewer = evaluation(dataset=dataset), replace(evaluation(dataset=dataset), cut=cut)
    ranked = rank_test(fewer, KNOWN)
    assert np.array_equal(ranked.model[0].candidates, rank_test(whole, KNOWN).model[0].candidates)
    full = dataset.known()
    reports = [ranking_report(one, rank_test(one, KNOWN, full), ["facts"], full) for one in (whole, fewer)]
    assert reports[0]["ceiling"] == reports[1]["ceiling"] and reports[1]["ceiling"]["metrics"]["mrr"] == 1
    assert {row["by"] for row in reports[1]["breakdowns"]} == {"facts"}


def test_what_was_trained_on_cannot_be_withheld():
    found = replace(evaluation("protocol=transductive"), cut=FactsCut(1))
    for measure in (lambda: rank_test(found, KNOWN), lambda: classify_with_probabilities(found)):
        error = complaint(measure)
        assert isinstance(error, OptionError) and "was trained on 4 of the 4 facts" in str(error)
    assert rank_test(replace(found, cut=FactsCut(2)), KNOWN).model  # nothing is withheld


def test_triples_are_the_same_whatever_is_known_of_newcomers():
    """The made-up ones are not among what is withheld, and classified by what is left."""
    whole, fewer = evaluation(), replace(evaluation(), cut=FactsCut(1, 1))
    hand = evaluation(dataset=by_hand(FactsCut(1, 1).of(DATASET)))
    classified = [classify_with_probabilities(one) for one in (whole, fewer)]
    assert np.array_equal(classified[0].result.triples.rows, classified[1].result.triples.rows)
    report = classification_report(fewer, classified[1])
    assert report["known_facts"]["kept"] == 4
    assert [row["group"] for row in report["calibration"]["known_facts"]] == ["1"]
    scorer, triples = scorer_for(hand.bundle, hand.dataset), classified[1].result.triples
    named = [hand.dataset.entities.ids(DATASET.entities.names_of(ends)) for ends in (triples.heads, triples.tails)]
    relations = hand.dataset.relations.ids(DATASET.relations.names_of(triples.relations))
    assert np.allclose(classified[1].result.scores, scorer.triple_scores(named[0], relations, named[1]))
    assert not np.allclose(classified[1].result.scores, classified[0].result.scores)


def with_labels(seed: int = 0) -> InductiveDataset:
    rng = np.random.default_rng(seed)
    valid, test = (labelled(DATASET, part, rng) for part in (DATASET.valid, DATASET.test))
    return replace(DATASET, valid=valid, test=test)


def test_the_report_of_a_classification():
    found = evaluation(dataset=with_labels())
    relation, limits = found.dataset.relations.id("citizen_of"), found.bundle.metrics["thresholds"]
    given = RelationThresholds(limits["overall"], {relation: limits["relations"]["citizen_of"]})
    scorer = scorer_for(found.bundle, found.dataset)
    expected = classify(found.dataset, scorer, np.random.default_rng(0), given)
    classified = classify_with_probabilities(found)
    report = classification_report(found, classified, ["relation"])
    assert report["thresholds"] == "newcomers"
    assert list(report)[: len(CORE)] == CORE
    assert (report["task"], report["filter"], report["candidates"]) == ("triple-classification", None, None)
    assert report["metrics"]["accuracy"] == expected.metrics()["accuracy"] and report["made_up_negatives"] == []
    assert report["queries"] == 8
    assert [(row["by"], row["relation"], row["triples"]) for row in report["breakdowns"]] == [
        ("relation", "citizen_of", 8)
    ]
    interval = report["intervals"]["accuracy"]
    assert interval["low"] <= report["metrics"]["accuracy"] <= interval["high"]
    assert classification_report(found, classified)["breakdowns"] == []
    made_up = classification_report(evaluation(), classify_with_probabilities(evaluation()))
    assert made_up["made_up_negatives"] == ["test"]
    assert "NaN" not in json.dumps(made_up)


def test_thresholds_are_those_for_newcomers_or_those_of_valid():
    labels = with_labels()
    by_valid = replace(evaluation(dataset=labels), thresholds="valid")
    expected = classify(labels, scorer_for(by_valid.bundle, labels), np.random.default_rng(0))
    classified = classify_with_probabilities(by_valid)
    found = classified.result
    assert found.thresholds == expected.thresholds and found.metrics() == expected.metrics()
    assert classification_report(by_valid, classified)["thresholds"] == "valid"
    both = [classify_test(replace(evaluation(), thresholds=whom)) for whom in ("newcomers", "valid")]
    assert both[0].triples.rows.tolist() == both[1].triples.rows.tolist()  # made up alike
    assert both[1].made_up == ("valid", "test")
    # Whoever asks about seen entities only gets the thresholds of valid.
    about_seen = replace(labels, test=labels.valid)
    assert replace(evaluation(), dataset=about_seen).thresholds_from == "valid"
    bare = replace(by_valid, bundle=replace(by_valid.bundle, metrics={}))
    assert replace(bare, thresholds=None).thresholds_from == "valid"
    assert "pass --thresholds valid" in str(complaint(classify_test, replace(bare, thresholds="newcomers")))


def test_the_data_decide_on_the_task_and_on_the_name_of_the_report(tmp_path):
    plain, labels = DATASET, with_labels()
    assert (default_task(plain), default_task(labels)) == ("link-prediction", "triple-classification")
    assert result_path(tmp_path, "link-prediction", plain) == tmp_path / "result.json"
    assert result_path(tmp_path, "link-prediction", labels) == tmp_path / "result-link-prediction.json"
    for task in TASKS:
        for dataset in (plain, labels):
            assert result_path(tmp_path, task, dataset).name in RESULTS


def test_a_report_in_the_folder_of_a_model_leaves_it_readable(tmp_path):
    write_bundle(tmp_path / "m", trained()[0].bundle(DATASET))
    for name in RESULTS:
        write_report({"metrics": {"mrr": 0.5}, "dataset": "é"}, tmp_path / "m" / name)
    assert json.loads((tmp_path / "m" / "result.json").read_text()) == {"metrics": {"mrr": 0.5}, "dataset": "é"}
    assert len(read_bundle(tmp_path / "m").rules) == len(trained()[1].rules)
    (tmp_path / "m" / "result-other.json").write_text("{}")
    assert isinstance(complaint(read_bundle, tmp_path / "m"), InputError)


def test_other_data_than_those_trained_on_are_refused():
    bundle = trained()[1]
    check_same_data(bundle, DATASET, Path("m"), "town")
    error = complaint(check_same_data, bundle, world(test=parts()["test"][:-1]), Path("m"), "town")
    assert isinstance(error, DatasetError) and str(error).startswith("town: is not the data set 'made'")
    assert "--any-data" in str(error)


@pytest.mark.parametrize(
    ("preset", "change", "name"),
    [
        ("default", "training.lr=0.5", "default"),
        ("default", "model.encoder=lstm", "lstm"),
        ("paper-fb15k", "seed=1", "vn"),
        ("mean", "seed=1", "mean"),
        ("lan", "seed=1", "lan"),
    ],
)
def test_the_short_name_of_a_model(preset, change, name):
    assert model_name(with_overrides(load_preset(preset), [change])) == name


def ranking(*ranks: float) -> RankingResult:
    """Made-up ranks of the questions of test."""
    size = np.full(len(ranks), len(DATASET.entities))
    return RankingResult(queries_of(DATASET), np.array(ranks), size, KNOWN, DATASET.entities, DATASET.relations)


def test_rankings_are_compared_with_the_first():
    first, second = ranking(1, 2, 4, 2), ranking(1, 1, 2, 1)
    one, two = compare_rankings([first, second], "mrr", seed=1)
    assert one.comparison is None and one.value == pytest.approx(0.5625) and one.metrics["hits@1"] == 0.25
    assert two.comparison is not None and two.comparison.difference == pytest.approx(0.3125)
    assert two.comparison.difference == pytest.approx(two.value - one.value)
    alone = paired_bootstrap(second.ranks, first.ranks, "mrr", np.random.default_rng(9), second.candidates)
    assert two.comparison.interval.low == pytest.approx(alone.interval.low, abs=0.1)
    assert two.comparison.interval.low >= 0 and two.interval.low <= two.value <= two.interval.high
    same = compare_rankings([first, first], "hits@3")[1].comparison
    assert same is not None and (same.difference, same.p_value) == (0, 1)


def test_classifications_are_compared_by_what_is_right():
    results = [classify_test(evaluation(*changes, dataset=with_labels())) for changes in ((), ("model.encoder=mean",))]
    turned = replace(results[0], triples=replace(results[0].triples, labels=1 - results[0].triples.labels))
    one, two, three = compare_classifications([*results, turned], seed=2)
    assert one.comparison is None and two.comparison is not None and three.comparison is not None
    assert one.value == results[0].metrics()["accuracy"] and three.value == pytest.approx(1 - one.value)
    assert two.comparison.difference == pytest.approx(two.value - one.value)
    assert three.comparison.difference == pytest.approx(1 - 2 * one.value)
    assert three.comparison.metric == "accuracy"


def test_a_metric_belongs_to_a_task():
    assert [metric_task(name) for name in ("mrr", "hits@10", "accuracy")] == [
        "link-prediction",
        "link-prediction",
        "triple-classification",
    ]
    assert "did you mean 'mrr'?" in str(complaint(metric_task, "mmrr"))


def test_ranks_are_written_a_row_a_question(tmp_path):
    result = rank_test(evaluation(), KNOWN).model[0]
    write_ranks(result, tmp_path / "new" / "ranks.parquet")
    table = pq.read_table(tmp_path / "new" / "ranks.parquet")
    assert table.column("rank").to_pylist() == result.ranks.tolist()
    assert table.column("entity").to_pylist() == ["q0", "q1", "q2", "q3"]
    assert table.schema.metadata[b"protocol"] == b"known filter, all candidates, mean ties"


def test_the_bins_of_ranks():
    assert rank_bins() == ("1", "2-3", "4-10", "11-30", "31-100", "101-300", "301-1000", "above 1000")
    shares = rank_shares(np.array([1, 1, 1.5, 3, 3.5, 10, 1000, 1000.5, 1e6, 2]))
    assert shares == pytest.approx([20, 30, 20, 0, 0, 0, 10, 20])
    assert sum(rank_shares(np.array([]))) == 0


def test_pictures(tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    result = rank_test(evaluation(), KNOWN).model[0]
    odd = replace(DATASET, name=r"cost in $ of $\frac{a}")
    both = {"model": result, "rules alone": ranking(1, 2, 4, 2)}
    drawn = plot_ranking(both, odd, odd.name, tmp_path / "new")
    calibration = ranking_report(evaluation(), rank_test(evaluation(), KNOWN))["calibration"]
    drawn.append(plot_reliability(calibration, odd.name, tmp_path / "new"))
    assert [path.name for path in drawn] == list(PICTURES)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(PICTURES)
    for path in drawn:
        height, width, _ = pyplot.imread(path).shape
        assert width > height > 300
    assert pyplot.get_fignums() == []


BLENDED = ("model.ensemble=yes", "model.constrained=no")


def test_a_report_of_suggestions_says_what_was_measured_and_of_whom():
    asked = evaluation(*BLENDED, seed=3)
    test = suggestion_test(asked, "known", None, 3)
    report = suggestion_report(asked, test, ["facts", "relation"], 1.25)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    names = ("task", "filter", "candidates", "seed", "evaluation_seed", "newcomers", "suggested", "seconds")
    assert [report[name] for name in names] == ["suggest", "known", "all", 0, 3, 3, SHOWN, 1.2]
    assert report["masked"] == len(test.dataset.withheld) and report["missing"] == test.missing.sum()
    assert report["calibrated"] and report["dataset_sha256"] == report["trained_on_sha256"]
    mine = suggestion_figures(test, test.suggested["model"])
    assert report["metrics"] == mine["metrics"] | {
        name: None for name, value in mine["metrics"].items() if np.isnan(value)
    }
    precision = mine["metrics"]["precision@0.5"]
    assert [one["name"] for one in report["others"]] == ["rules", "frequency"]
    for one in report["others"]:
        found = test.suggested[one["name"]]
        assert one["recall_at_same_precision"] == recall_at(test, found, precision)
        assert one["bins"] == suggestion_figures(test, found)["bins"] != report["bins"]
    rows = [*by_known_facts(test, test.suggested["model"]), *by_relation(test, test.suggested["model"])]
    assert [(row["by"], row["group"]) for row in report["breakdowns"]] == [(row["by"], row["group"]) for row in rows]
    assert suggestion_report(asked, test)["breakdowns"] == []


def test_without_rules_there_is_nobody_beside_the_model_and_what_is_no_number_is_null():
    asked = evaluation()
    test = suggestion_test(asked, "known", None, 9)
    nothing = Suggested(*(column[:0] for column in vars(test.suggested["model"]).values()))
    report = suggestion_report(asked, replace(test, suggested=dict.fromkeys(test.suggested, nothing), calibrated=False))
    assert report["others"] == [] and not report["calibrated"] and report["bins"] == []
    assert report["metrics"]["precision@0.5"] is None and report["metrics"]["recall@0.5"] == 0
    assert report["thresholds"][0]["right"] is None and json.dumps(report, allow_nan=False)


def test_a_report_of_suggestions_has_a_place_among_those_of_a_model(tmp_path):
    for dataset in (DATASET, with_labels()):
        path = result_path(tmp_path, "suggest", dataset)
        assert path == tmp_path / "result-suggest.json" and path.name in RESULTS


def test_the_picture_of_suggestions_has_the_ten_likeliest_and_all(tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    drawn, save = [], evaluation_plots.save_picture

    def kept(figure, path):
        drawn.extend(
            (axes.get_title(), [(line.get_label(), line.get_xydata().tolist()) for line in axes.get_lines()])
            for axes in figure.axes
        )
        save(figure, path)

    monkeypatch.setattr(evaluation_plots, "save_picture", kept)

    def figures(*points: tuple[float, float]) -> dict[str, Any]:
        bins = [{"probability": x, "right": y} for x, y in points]
        return {"bins": bins, "bins_first": bins[:1], "metrics": {"ece": points[0][0] / 10}}

    report = figures((0.25, 0.5), (0.75, 1.0)) | {"others": [{"name": "rules", **figures((0.5, 0.0))}]}
    path = plot_suggestions(report, r"cost in $ of $\frac{a}", tmp_path / "new")
    assert path == tmp_path / "new" / "suggestions.png" and [one.name for one in path.parent.iterdir()] == [path.name]
    height, width, _ = pyplot.imread(path).shape
    assert width > height > 300 and pyplot.get_fignums() == []
    titles, lines = zip(*drawn, strict=True)
    assert titles == ("ten likeliest of each newcomer", "all suggestions")
    first, everything = (dict(panel[1:]) for panel in lines)
    assert first == {"model (error 2.5 points)": [[0.25, 0.5]], "rules (error 5.0 points)": [[0.5, 0.0]]}
    assert everything == {"model": [[0.25, 0.5], [0.75, 1.0]], "rules": [[0.5, 0.0]]}


def test_the_picture_of_commands_has_a_panel_each_and_draws_intervals(tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    test = suggestion_test(evaluation(*BLENDED), "known", None, 9)
    report = suggestion_report(evaluation(*BLENDED), test)
    drawn: dict[str, tuple[list[str], list[list[float]]]] = {}

    def kept(figure, path):
        for axes in figure.axes:
            labels = [line.get_label() for line in axes.get_lines()]
            ends = [segment[:, 1].tolist() for one in axes.collections for segment in one.get_segments()]
            drawn[axes.get_title()] = labels, ends
        pyplot.close(figure)

    monkeypatch.setattr(evaluation_plots, "save_picture", kept)
    assert plot_commands(report, "town", tmp_path) == tmp_path / "commands.png"
    assert list(drawn) == ["suggest", "predict", "classify", "confidence"]
    error = 100 * report["verbs"]["predict"]["ece"]
    labels, ends = drawn["predict"]
    assert labels == ["as it should be", f"10 best of each question (error {error:.1f} points)"]
    assert ends == [[one["right_low"], one["right_high"]] for one in report["verbs"]["predict"]["bins"]]
    assert len(drawn["suggest"][0]) == 4 and [one.partition(" (")[0] for one in drawn["classify"][0][1:]] == [
        "all triples"
    ]
    # A command that has nothing to show has no line, and its picture is drawn all the same.
    nothing = {"answers": 0, "ece": None, "bins": []}
    groups = {name: {"newcomers": 0, **nothing} for name in ("enough", "too_few")}
    empty = {"predict": nothing, "classify": {**nothing, "true": nothing, "false": nothing}, "confidence": groups}
    plot_commands({"by_k": [{"k": 1, **nothing}], "verbs": empty}, "town", tmp_path)
    assert drawn["predict"] == (["as it should be"], [])


def test_commands_side_by_side_in_bands():
    def bins(*places: int) -> dict[str, Any]:
        return {"bins": [{"low": one / 10, "high": (one + 1) / 10, "answers": one} for one in places]}

    report = {
        "by_k": [{"k": 1, **bins(9)}, {"k": 10, **bins(0, 5)}],
        "verbs": {"predict": bins(0), "classify": bins(9)},
    }
    found = bands_of(report)
    assert found.commands == ("suggest: 10 likeliest", "predict", "classify")
    counts = {name: [None if one is None else one["answers"] for one in row] for name, row in found.rows}
    assert counts == {"0.0 to 0.1": [0, 0, None], "0.5 to 0.6": [5, None, None], "0.9 to 1.0": [None, None, 9]}


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = complaint(evaluation_plots.need_matplotlib)
    assert isinstance(error, MissingExtraError) and "pip install 'newcomer[plots]'" in str(error)


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    rank_test(replace(evaluation(), threads=before + 1), KNOWN)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("changes", [(), ("model.ensemble=yes", "model.constrained=no")], ids=["network", "blended"])
def test_the_report_says_how_far_probabilities_can_be_believed(changes):
    ranked = rank_test(evaluation(*changes), KNOWN)
    found = ranking_report(evaluation(*changes), ranked)["calibration"]
    assert found["calibrated"]
    model = Predictor(trained(*changes)[1], threads=1)
    shown = [
        (f"q{i}", place, answer) for i in range(4) for place, answer in enumerate(model.tails(f"q{i}", "citizen_of"))
    ]
    snapshot, relation = model._snapshot, model.names.relation("citizen_of")
    asked = {f"q{i}": model._questions(snapshot).ask(snapshot.id(f"q{i}"), relation) for i in range(4)}
    # As it was learned from questions that have an answer: what is shown is never below the probability of the fact.
    learned = [
        float(model._prober(snapshot).if_any(asked[name], np.array([snapshot.id(answer.entity)]))[0])
        for name, _, answer in shown
    ]
    assert [a.if_any for _, _, a in shown] == [
        max(b, a.probability) for b, (_, _, a) in zip(learned, shown, strict=True)
    ]
    probabilities = np.array(learned)
    right = np.array([(name, "citizen_of", answer.entity) in set(DATASET.known().named()) for name, _, answer in shown])
    first = np.array([place == 0 for _, place, _ in shown])
    assert right.sum() > 0
    for part, mask in (("shown", np.ones(len(shown), dtype=bool)), ("first", first)):
        assert (found[part]["questions"], found[part]["answers"]) == (4, int(mask.sum()))
        assert found[part]["right"] == pytest.approx(right[mask].mean())
        assert found[part]["probability_after"] == pytest.approx(probabilities[mask].mean(), abs=1e-4)
        assert found[part]["ece_after"] == pytest.approx(calibration_error(probabilities[mask], right[mask]), abs=1e-4)
        assert sum(one["answers"] for one in found[part]["bins_after"]) == mask.sum()
    model.calibration = None
    plain = np.array([answer.if_any for i in range(4) for answer in model.tails(f"q{i}", "citizen_of")])
    assert found["shown"]["ece_before"] == pytest.approx(calibration_error(plain, right), abs=1e-4)
    assert [(group["group"], group["first"]["questions"]) for group in found["known_facts"]] == [("2-5", 4)]


@pytest.mark.parametrize("changes", [(), ("model.ensemble=yes", "model.constrained=no")], ids=["network", "blended"])
def test_a_classification_says_how_far_its_probabilities_can_be_believed(changes):
    found = evaluation(*changes, dataset=with_labels())
    classified = classify_with_probabilities(found)
    report = classification_report(found, classified)["calibration"]
    assert report["calibrated"] and [(one["group"], one["triples"]["answers"]) for one in report["known_facts"]] == [
        ("2-5", 8)
    ]
    model = Predictor(trained(*changes)[1], threads=1)
    names = found.dataset.entities, found.dataset.relations
    triples = [(names[0][h], names[1][r], names[0][t]) for h, r, t in classified.result.triples.rows.tolist()]
    right = np.array([triple in set(DATASET.known().named()) for triple in triples])
    assert right.sum() == 4 and report["triples"]["right"] == 0.5
    curve, snapshot = model.calibration.triples, model._snapshot
    questions = model._questions(snapshot)
    asked = [questions.ask(snapshot.id(head), model.names.relation(name)) for head, name, _ in triples]
    tails = [np.array([snapshot.id(tail)]) for _, _, tail in triples]
    after = [curve.probabilities(one.evidence(tail), one.relation)[0] for one, tail in zip(asked, tails, strict=True)]
    model.calibration = None
    before = [verdict.probability for verdict in model.classify(triples)]
    for when, probabilities in (("after", np.array(after)), ("before", np.array(before))):
        assert report["triples"][f"probability_{when}"] == pytest.approx(probabilities.mean(), abs=1e-4)
        assert report["triples"][f"ece_{when}"] == pytest.approx(calibration_error(probabilities, right), abs=1e-4)
        assert sum(one["answers"] for one in report["triples"][f"bins_{when}"]) == 8
    assert classified.result.metrics() == classify_test(found).metrics()


def test_a_classification_without_calibration_or_relations_says_so():
    plain = evaluation("training.validation_rate=0", dataset=with_labels())
    classified = classify_with_probabilities(plain)
    found = classification_report(plain, classified)["calibration"]
    assert not found["calibrated"] and found["triples"]["ece_after"] is None and found["triples"]["ece_before"] >= 0
    strange = replace(evaluation(), dataset=without_facts())
    asked, known = classify_with_probabilities(strange), evaluation().bundle.observed.relations
    kept = [strange.dataset.relations[relation] in known for relation in asked.result.triples.relations.tolist()]
    assert len(asked.triples) == sum(kept) < len(kept)


def test_a_model_without_calibration_has_only_what_was_before():
    plain = evaluation("training.validation_rate=0")
    found = ranking_report(plain, rank_test(plain, KNOWN))["calibration"]
    assert not found["calibrated"]
    assert found["shown"]["ece_after"] is None and found["shown"]["bins_after"] is None
    assert found["shown"]["ece_before"] >= 0 and found["first"]["answers"] == 4


def test_right_is_what_the_filter_holds_and_names_decide():
    known = set(DATASET.known().named())
    answers = Predictor(trained()[1], threads=1).tails("q0", "citizen_of")
    wrong = next(one.entity for one in answers if ("q0", "citizen_of", one.entity) not in known)
    more = (DATASET.entities.id("q0"), DATASET.relations.id("citizen_of"), DATASET.entities.id(wrong))
    triples = concatenate([DATASET.known().triples, TripleArray.of([more])])
    full = Graph.build(DATASET.entities, DATASET.relations, triples)
    plain, fuller = (
        ranking_report(evaluation(), rank_test(evaluation(), RankingProtocol(filter=name), full))
        for name in ("known", "full")
    )
    shown = plain["calibration"]["shown"]
    assert fuller["calibration"]["shown"]["right"] == pytest.approx(shown["right"] + 1 / shown["answers"])
    other = shuffled(DATASET)
    moved = ranking_report(evaluation(dataset=other), rank_test(evaluation(dataset=other), KNOWN))["calibration"]
    assert moved["first"]["probability_after"] == pytest.approx(
        plain["calibration"]["first"]["probability_after"], abs=1e-4
    )
    strange = rank_test(evaluation(dataset=without_facts()), KNOWN)
    assert strange.unknown > 0 and len(strange.shown) == 0
    assert ranking_report(evaluation(dataset=without_facts()), strange)["calibration"]["shown"]["right"] is None


def without_facts() -> InductiveDataset:
    """Only what the model has no relation for is asked."""
    return world(aux=[*parts()["aux"], ("q0", "admires", "p01")], test=[("q0", "admires", "p02")])
