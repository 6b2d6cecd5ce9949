"""Network, rules and plain counts together: the weights follow from who is right, and all are heard.

Covers newcomer.models.ensemble and newcomer.training.ensemble.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from newcomer.config import load_preset, with_overrides
from newcomer.data import load_dataset
from newcomer.evaluation.ranking import evaluate, queries_of
from newcomer.models.ensemble import FEATURES, KINDS, LINK, UNKNOWN, EnsembleScorer, features_of, ranks_of, voices
from newcomer.models.serialisation import BLEND
from newcomer.rules.mining import mine_rules
from newcomer.rules.ranking import RuleRanker
from newcomer.rules.similarity import Company
from newcomer.training.ensemble import THINNED
from newcomer.training.ensemble_weights import PRIOR, Examples, examples, few_weights_for, prior_of, weights_for
from newcomer.training.pipeline import fit
from newcomer.training.preparation import mined_rules
from training_world import choosing, settings, world

SAMPLE = load_dataset("sample")
QUERIES = queries_of(SAMPLE).take(np.arange(40))
RANKER = RuleRanker.build(mine_rules(SAMPLE.observed).rules, SAMPLE.own_facts, SAMPLE.observed)


class Table:
    """A network that says what it is told to."""

    def __init__(self, scores: dict[tuple[int, int], np.ndarray]) -> None:
        self.table, self.num_entities = scores, len(SAMPLE.entities)

    def scores(self, entities: np.ndarray, relations: np.ndarray) -> np.ndarray:
        return np.stack([self.table[int(e), int(r)] for e, r in zip(entities, relations, strict=True)])


def network(right: float) -> Table:
    """Noise, with ``right`` added to the answers of a query."""
    rng, table = np.random.default_rng(0), {}
    for entity, relation, answer in zip(QUERIES.entity, QUERIES.relation, QUERIES.answer, strict=True):
        key = int(entity), int(relation)
        noise = rng.normal(size=len(SAMPLE.entities)).astype(np.float32)
        table.setdefault(key, noise)[answer] += np.float32(right)
    return Table(table)


def all_voices(saying: Table, *asked: np.ndarray) -> list[np.ndarray]:
    return list(voices(saying.scores(*asked), RANKER.evidence(*asked)))


def test_the_score_is_the_weighted_sum_of_all_voices():
    weights = np.array([0.5, 2.0, -1.0, 0.25, 3.0, -0.5, 1.5], dtype=np.float32)
    saying = network(1.0)
    found = EnsembleScorer(saying, RANKER, weights).scores(QUERIES.entity[:4], QUERIES.relation[:4])
    heard = all_voices(saying, QUERIES.entity[:4], QUERIES.relation[:4])
    assert len(heard) == len(FEATURES) == len(PRIOR)
    np.testing.assert_allclose(found, sum(w * v for w, v in zip(weights, heard, strict=True)), rtol=1e-5, atol=1e-5)


def voice_by_voice(saying: Table, entity: int, relation: int) -> dict[str, list[float]]:
    """What is said of every candidate, from the definitions, one by one."""
    asked = np.array([entity], np.int32), np.array([relation], np.int32)
    scores, rules = saying.scores(*asked)[0], RANKER.scores(*asked)[0].tolist()
    best = RANKER.evidence(*asked).confidence[0].tolist()
    count, names = len(SAMPLE.relations), list(SAMPLE.entities)
    facts = [*SAMPLE.observed.named(), *SAMPLE.auxiliary.named()]
    told = [f for f in SAMPLE.observed.named() if SAMPLE.relations.id(f[1]) == relation % count]
    answers = [f[2] if relation < count else f[0] for f in told]
    occurring = {name for h, _, t in SAMPLE.observed.named() for name in (h, t)}
    tied = {h if t == names[entity] else t for h, _, t in facts if names[entity] in (h, t)}
    total = sum(math.exp(score) for name, score in zip(names, scores, strict=True) if name in occurring)
    certain = [min(max(one, UNKNOWN), 1 - UNKNOWN) for one in best]
    return {
        "network": [math.log(math.exp(score) / total) for score in scores],
        "order": [-math.log(1 + sum(other > one for other in rules)) for one in rules],
        "confidence": [math.log(max(one, UNKNOWN)) for one in best],
        "odds": [math.log(one / (1 - one)) for one in certain],
        "link": [float(name in tied) for name in names],
        "frequency": [math.log(1 + answers.count(name)) for name in names],
        "newcomer": [float(name not in occurring) for name in names],
    }


@pytest.mark.parametrize("place", [11, 25])
def test_each_voice_says_what_it_stands_for(place):
    saying, asked = network(1.0), (QUERIES.entity[place : place + 1], QUERIES.relation[place : place + 1])
    expected = voice_by_voice(saying, *(int(ids[0]) for ids in asked))
    for name, found in zip(FEATURES, all_voices(saying, *asked), strict=True):
        np.testing.assert_allclose(found[0], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
        assert len(set(expected[name])) > 1, f"{name} says the same of everyone"


def test_with_company_all_that_is_known_is_counted_and_likeness_has_a_voice():
    seen = int(SAMPLE.is_seen.sum())
    company = Company.of(SAMPLE.observed, SAMPLE.auxiliary.triples, seen)
    saying, count, names = network(1.0), len(SAMPLE.relations), list(SAMPLE.entities)
    facts = [*SAMPLE.observed.named(), *SAMPLE.auxiliary.named()]
    spoken = 0
    for place in range(0, len(QUERIES), 3):
        asked = QUERIES.entity[place : place + 1], QUERIES.relation[place : place + 1]
        entity, relation = int(asked[0][0]), int(asked[1][0])
        evidence = replace(RANKER, company=company).evidence(*asked)
        heard = dict(zip(features_of(company=True, paths=False), voices(saying.scores(*asked), evidence), strict=True))
        told = [
            (h, t) if relation < count else (t, h) for h, r, t in facts if SAMPLE.relations.id(r) == relation % count
        ]
        answers = [answer for _, answer in told]
        np.testing.assert_allclose(
            heard["frequency"][0], [math.log(1 + answers.count(name)) for name in names], rtol=1e-5
        )
        known = SAMPLE.entities.ids([answer for head, answer in told if head == names[entity]])
        likeness = company.likeness(entity, known)
        np.testing.assert_allclose(heard["company"][0], np.log(1 + 100 * likeness), rtol=1e-5)
        spoken += bool(likeness.any())
        for name, plain in zip(FEATURES, all_voices(saying, *asked), strict=True):
            assert name == "frequency" or np.array_equal(heard[name], plain)
    assert spoken


def test_a_question_that_is_asked_again_is_answered_as_before():
    company = Company.of(SAMPLE.observed, SAMPLE.auxiliary.triples, int(SAMPLE.is_seen.sum()))
    ranker, asked = replace(RANKER, company=company), (QUERIES.entity[:20], QUERIES.relation[:20])
    once, again = ranker.evidence(*asked), ranker.evidence(*(np.tile(ids, 2) for ids in asked))
    assert once.likeness is not None and once.likeness.any() and once.frequency.any()
    assert np.array_equal(again.likeness, np.tile(once.likeness, (2, 1)))
    assert np.array_equal(again.frequency, np.tile(once.frequency, (2, 1)))


def alone(voice: str) -> np.ndarray:
    return np.array([float(name == voice) for name in FEATURES], dtype=np.float32)


def test_without_the_network_the_order_is_that_of_the_rules():
    scorer = EnsembleScorer(network(1.0), RANKER, alone("order"))
    ranked = evaluate(SAMPLE, RANKER, queries=QUERIES).ranks
    assert np.array_equal(evaluate(SAMPLE, scorer, queries=QUERIES).ranks, ranked)


def test_ranks_count_who_is_above():
    scores = np.array([[3.0, 1.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    assert ranks_of(scores).tolist() == [[1, 4, 1, 3], [1, 1, 1, 1]]


def test_the_confidence_is_that_of_the_best_rule():
    evidence = RANKER.evidence(QUERIES.entity[:10], QUERIES.relation[:10])
    strengths = set(np.round(RANKER.index.strength, 12).tolist())
    assert set(np.round(evidence.confidence[evidence.confidence > 0], 12).tolist()) <= strengths
    assert np.array_equal(evidence.scores, RANKER.scores(QUERIES.entity[:10], QUERIES.relation[:10]))
    for scores, confidence in zip(evidence.scores, evidence.confidence, strict=True):
        order = np.argsort(-scores, kind="stable")
        assert (np.diff(confidence[order]) <= 1e-12).all(), "who stands higher has no weaker best rule"


def learned_from(saying: Any) -> np.ndarray:
    """(3, voices): as many as a scorer takes."""
    usual, tied = weights_for(list(examples(saying, RANKER, SAMPLE, QUERIES)))
    return np.stack([usual, 0 * usual, tied])


@pytest.mark.parametrize(("right", "low", "high"), [(0.0, -0.3, 0.6 * PRIOR[0]), (9.0, 1.2 * PRIOR[0], 20.0)])
def test_a_network_that_is_right_is_believed_and_one_that_guesses_is_not(right, low, high):
    weights = learned_from(network(right))
    assert low < weights[0, 0] < high


def test_together_they_do_better_than_the_guess_on_what_they_were_weighed_on():
    saying = network(3.0)
    learned = learned_from(saying)
    guessed, weighed = (
        evaluate(SAMPLE, EnsembleScorer(saying, RANKER, w), queries=QUERIES).metrics()["mrr"]
        for w in (np.array(PRIOR, dtype=np.float32), learned)
    )
    assert weighed >= guessed
    assert np.array_equal(learned, learned_from(saying))


def test_triples_are_scored_as_answers_of_their_queries():
    scorer = EnsembleScorer(network(1.0), RANKER, np.array(PRIOR, dtype=np.float32))
    rows = scorer.scores(QUERIES.entity, QUERIES.relation)
    found = scorer.triple_scores(QUERIES.entity, QUERIES.relation, QUERIES.answer)
    np.testing.assert_allclose(found, rows[np.arange(len(QUERIES)), QUERIES.answer], rtol=1e-6)


def test_a_run_with_evidence_weighs_both_and_keeps_the_weights():
    small = ["model.dim=8", "training.epochs=2", "training.batches=4", "training.validate_every=1"]
    quick = ["rules.walks=10", "rules.kinds=one,two,both"]
    fitted = fit(SAMPLE, with_overrides(load_preset("default"), [*small, *quick]), threads=1)
    about = fitted.metrics["validation"]
    assert about["model"]["mrr"] > about["network"]["mrr"]
    names = features_of(company=True, paths=False)
    assert list(fitted.metrics["blend"]) == [f"{voice}{kind}" for kind in KINDS for voice in names]
    stored = fitted.bundle(SAMPLE).weights[BLEND]
    assert np.array_equal(stored, fitted.blend) and not np.allclose(stored[0], prior_of(names))
    assert stored.reshape(-1).tolist() == list(fitted.metrics["blend"].values())
    assert stored[1].any() and stored[2].any() and stored[2, LINK] == 0.0


def known_of(entity: int) -> int:
    name = list(SAMPLE.entities)[entity]
    told = [*SAMPLE.observed.named(), *SAMPLE.auxiliary.named()]
    return sum((h == name) + (t == name) for h, _, t in told)


def test_what_is_added_where_little_is_known_counts_the_less_the_more_is():
    usual, few = np.array(PRIOR, np.float32), np.arange(1, 8, dtype=np.float32) / 4
    asked, saying = (QUERIES.entity[:6], QUERIES.relation[:6]), network(1.0)
    found = EnsembleScorer(saying, RANKER, np.stack([usual, few])).scores(*asked)
    heard, counts = all_voices(saying, *asked), [known_of(int(entity)) for entity in asked[0]]
    assert len(set(counts)) > 1
    for row, count in enumerate(counts):
        expected = sum((u + f / count) * v[row] for u, f, v in zip(usual, few, heard, strict=True))
        np.testing.assert_allclose(found[row], expected, rtol=1e-4, atol=1e-4)
    alone = EnsembleScorer(saying, RANKER, usual).scores(*asked)
    nothing = EnsembleScorer(saying, RANKER, np.stack([usual, 0 * few])).scores(*asked)
    assert np.array_equal(alone, nothing)


def test_what_is_added_for_those_who_are_tied_already_counts_for_them_alone():
    usual, tied = np.array(PRIOR, np.float32), np.arange(1, 8, dtype=np.float32) / 4
    asked, saying = (QUERIES.entity[:6], QUERIES.relation[:6]), network(1.0)
    scorer = EnsembleScorer(saying, RANKER, np.stack([usual, 0 * usual, tied]))
    found, before = scorer.scores(*asked), EnsembleScorer(saying, RANKER, usual).scores(*asked)
    heard = all_voices(saying, *asked)
    linked = RANKER.evidence(*asked).linked > 0
    assert linked.any() and not linked.all()
    np.testing.assert_array_equal(found[~linked], before[~linked])
    more = sum(t * voice for t, voice in zip(tied, heard, strict=True))
    np.testing.assert_allclose(found[linked], (before + more)[linked], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sum(scorer.parts(*asked)), found, rtol=1e-6)


def test_a_network_that_is_right_about_those_who_are_tied_is_believed_there():
    """The voices are noise but the network's, which knows the answers that are tied, and the link."""
    rng, count, size = np.random.default_rng(0), 400, 30
    answers = torch.from_numpy(rng.integers(size, size=count))
    table = torch.from_numpy(rng.normal(size=(count, size, len(FEATURES))).astype(np.float32))
    table[:, :, LINK] = torch.from_numpy(rng.integers(2, size=(count, size)).astype(np.float32))
    who = torch.arange(count)
    table[who, answers, 0] += 4 * table[who, answers, LINK]
    usual, tied = weights_for([Examples(table, torch.zeros(count, size), answers, torch.zeros(count))])
    assert tied[0] > 0.3 and tied[0] > np.abs(np.delete(tied, 0)).max() and tied[LINK] == 0.0
    assert usual[0] < tied[0]


def test_a_network_that_is_right_where_little_is_known_is_believed_there():
    """The voices are noise but the network's, of which those with one fact learn more than the usual."""
    rng, count, size = np.random.default_rng(0), 200, 30
    answers = torch.from_numpy(rng.integers(size, size=count))
    table = torch.from_numpy(rng.normal(size=(count, size, len(FEATURES))).astype(np.float32))
    few = torch.tensor([1.0, 0.01]).repeat(count // 2)
    table[torch.arange(count), answers, 0] += 4 * few
    batch = Examples(table, torch.zeros(count, size), answers, few)
    usual, tied = weights_for([Examples(*(part[few < 1] for part in batch))])
    added = few_weights_for([batch], usual, tied)
    assert added[0] > 0.3 and added[0] > np.abs(added[1:]).max()
    silent = weights_for([batch], silent=("network", "link"))
    assert not silent[:, [0, 4]].any() and silent[0, 1:4].any() and not silent[1].any()
    without_order = weights_for([batch], silent=("order",))
    assert not without_order[:, 1].any() and without_order[:, 2:4].any(axis=1).all()


@pytest.mark.parametrize("hidden", [0.0, 0.5])
def test_weights_are_learned_as_drawn_on_the_busiest_and_where_few_facts_were_left(hidden, monkeypatch):
    monkeypatch.setattr("newcomer.training.masking.HIDDEN", hidden)
    monkeypatch.setattr("newcomer.training.masking.LEAST", 1)
    told: list[float] = []

    def watched(*asked: Any, **options: Any) -> Iterator[Examples]:
        for batch in examples(*asked, **options):
            told.append(float(batch.few.min()))
            yield batch

    monkeypatch.setattr("newcomer.training.ensemble.examples", watched)

    def counted(batches: list[Examples], names: Any) -> tuple[np.ndarray, np.ndarray]:
        guess = prior_of(names).numpy()
        return len(batches) * guess, 0 * guess

    monkeypatch.setattr("newcomer.training.ensemble.weights_for", counted)
    fitted = fit(world(), settings(*choosing("foldin"), "model.ensemble=yes", "training.epochs=1"), device="cpu")
    usual = 1 + (hidden > 0)  # batches: as drawn, and where a fact of each was hidden
    assert len(told) == usual + len(THINNED)  # one batch each
    assert told[:usual] == pytest.approx([1 / 3, 1 / 2][:usual])
    assert told[usual] == 1 and all(least >= 1 / most for most, least in zip(THINNED, told[usual:], strict=True))
    assert fitted.blend is not None
    np.testing.assert_allclose(fitted.blend[0], usual * prior_of(features_of(False, False)))


@pytest.mark.parametrize("protocol", ["inductive", "refreshed"])
def test_rules_have_not_seen_what_is_hidden_of_the_busiest(protocol, monkeypatch):
    monkeypatch.setattr("newcomer.training.masking.HIDDEN", 0.5)
    monkeypatch.setattr("newcomer.training.masking.LEAST", 1)
    seen: list[int] = []

    def watched(dataset: Any, *options: Any) -> Any:
        seen.append(len(dataset.auxiliary))
        return mined_rules(dataset, *options)

    monkeypatch.setattr("newcomer.training.ensemble.mined_rules", watched)
    changes = "model.ensemble=yes", "training.epochs=1", f"protocol={protocol}", "training.final_fit=no"
    fitted = fit(world(), settings(*choosing("foldin"), *changes), device="cpu")
    assert len(seen) == (protocol == "refreshed") and all(count < len(fitted.dataset.auxiliary) for count in seen)


def table_of(batches: list[Examples]) -> Examples:
    return Examples(*(torch.cat(parts) for parts in zip(*batches, strict=True)))


def test_where_candidates_are_few_everyone_is_compared():
    found = table_of(list(examples(network(1.0), RANKER, SAMPLE, QUERIES)))
    assert found.voices.shape == (len(QUERIES), len(SAMPLE.entities), len(FEATURES))
    assert torch.equal(found.answers, torch.from_numpy(QUERIES.answer.astype(np.int64)))
    true = SAMPLE.known().adjacency
    for row, (entity, relation, answer) in enumerate(
        zip(QUERIES.entity, QUERIES.relation, QUERIES.answer, strict=True)
    ):
        relations, tails = true.of(int(entity))
        others = set(tails[relations == relation].tolist()) - {int(answer)}
        assert set(torch.nonzero(found.prior[row] == -torch.inf).flatten().tolist()) == others
        assert set(found.prior[row].unique().tolist()) <= {0.0, -torch.inf}


def test_of_many_candidates_some_stand_for_the_others():
    everyone, few = (table_of(list(examples(network(3.0), RANKER, SAMPLE, QUERIES, most))) for most in (10_000, 300))
    linked, answers = FEATURES.index("link"), torch.arange(len(QUERIES))
    assert few.voices.shape[1] < everyone.voices.shape[1] / 2
    assert torch.equal(few.voices[answers, few.answers], everyone.voices[answers, everyone.answers])
    assert torch.equal(few.voices[..., linked].sum(1), everyone.voices[..., linked].sum(1))  # all of them are there
    assert bool((few.prior[answers, few.answers] == 0).all())
    torch.testing.assert_close(few.prior.exp().sum(1), everyone.prior.exp().sum(1), rtol=0.02, atol=0.0)
    whole, drawn = weights_for([everyone]), weights_for([few])
    np.testing.assert_allclose(drawn, whole, atol=0.15)
    again = table_of(list(examples(network(3.0), RANKER, SAMPLE, QUERIES, 300)))
    assert torch.equal(again.prior, few.prior)


def test_the_parts_of_a_large_graphs_queries_are_small(monkeypatch):
    whole = table_of(list(examples(network(1.0), RANKER, SAMPLE, QUERIES)))
    monkeypatch.setattr("newcomer.training.ensemble_weights.CELLS_AT_ONCE", 3 * len(SAMPLE.entities))
    batches = list(examples(network(1.0), RANKER, SAMPLE, QUERIES))
    assert [len(batch.answers) for batch in batches] == [3] * 13 + [1]
    assert torch.equal(table_of(batches).voices, whole.voices)
