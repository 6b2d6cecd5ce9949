"""How far a model's probabilities can be believed: on the questions of test, before and after calibration.

The answers are those that a user is shown, the ten best of each question without what is known already; right is what
the filter holds for true. They are also taken by how much is known of the entity, and the first answers by themselves:
among ten most are clearly wrong, which is easily seen.

Classified triples are taken as they are, by their probability; right are those that are true.
"""

from typing import Any

import numpy as np

from newcomer.evaluation.alignment import AlignedModel
from newcomer.evaluation.breakdown import facts_groups, known_facts
from newcomer.evaluation.calibration import (
    AnswerRecorder,
    Answers,
    Curve,
    Probabilities,
    calibration_error,
    classifier_evidence,
    evidence,
    reliability,
    triple_rows,
    uncalibrated,
)
from newcomer.evaluation.classification import ClassificationResult
from newcomer.evaluation.metrics import mean
from newcomer.evaluation.ranking import Queries
from newcomer.graph import InductiveDataset, Mask

SHOWN = 10  # answers a question


def shown_answers(recorded: AnswerRecorder, scorer: AlignedModel, queries: Queries) -> Answers:
    """Of all recorded answers those to these questions, as far as the model has the relation."""
    answers = recorded.answers()
    size = 1 + max(int(answers.entity.max(initial=0)), int(queries.entity.max(initial=0)))
    mine, wanted = (one.relation.astype(np.int64) * size + one.entity for one in (answers, queries))
    return answers.where(np.isin(mine, wanted) & scorer.alignment.knows(answers.relation))


def calibrated(curve: Curve | None, answers: Answers, scorer: AlignedModel) -> Probabilities | None:
    """Calibrated probabilities; None where the model has no such curve."""
    if curve is None:
        return None
    return curve.probabilities(answers.evidence, scorer.alignment.relations[answers.relation])


def answers_of_triples(scorer: AlignedModel, dataset: InductiveDataset, result: ClassificationResult) -> Answers:
    """Classified triples as answers, one a question; as far as the model has the relation.

    Of the ends the newcomer counts as the one that is asked about; the head, where that does not decide.
    """
    places = np.flatnonzero(scorer.alignment.knows(result.triples.relations))
    triples, shares = result.triples.take(places), scorer.embedding is not None
    found = classifier_evidence(result.scores[places])
    plain = uncalibrated(result.scores, places, shares=False)
    if scorer.classifier is None:
        for place, row, left_out in triple_rows(dataset, scorer, triples):
            answer = triples.tails[place : place + 1]
            found[place] = evidence(row, left_out, answer)[0]
            if shares:
                plain[place] = uncalibrated(row, answer, shares)[0]
    only_tail = ~dataset.is_seen[triples.tails] & dataset.is_seen[triples.heads]
    entities = np.where(only_tail, triples.tails, triples.heads)
    first, right = np.zeros(len(triples), dtype=np.int64), result.labels[places]
    return Answers(np.arange(len(triples)), entities, triples.relations, first, found, plain, right)


def calibration_report(
    answers: Answers, probabilities: Probabilities | None, dataset: InductiveDataset, of_triples: bool = False
) -> dict[str, Any]:
    """Errors and bins, also by number of known facts: of the answers shown and of the first ones, or of triples.

    Where the model is not calibrated, the figures "after" are null.
    """
    every = np.ones(len(answers), dtype=bool)
    masks = {"triples": every} if of_triples else {"shown": every, "first": answers.place == 0}
    codes, names = facts_groups(known_facts(dataset)[answers.entity])

    def errors_of(among: Mask) -> dict[str, Any]:
        return {name: _errors(answers, probabilities, mask & among) for name, mask in masks.items()}

    return {
        "calibrated": probabilities is not None,
        **{name: errors | _bins(answers, probabilities, masks[name]) for name, errors in errors_of(every).items()},
        "known_facts": [{"group": names[code], **errors_of(codes == code)} for code in np.unique(codes).tolist()],
    }


def _errors(answers: Answers, probabilities: Probabilities | None, mask: Mask) -> dict[str, Any]:
    right = answers.right[mask]
    return {
        "questions": len(np.unique(answers.question[mask])),
        "answers": len(right),
        "right": float(mean(right)),
        "ece_before": calibration_error(answers.plain[mask], right),
        "ece_after": None if probabilities is None else calibration_error(probabilities[mask], right),
        "probability_before": float(mean(answers.plain[mask])),
        "probability_after": None if probabilities is None else float(mean(probabilities[mask])),
    }


def _bins(answers: Answers, probabilities: Probabilities | None, mask: Mask) -> dict[str, Any]:
    right = answers.right[mask]
    after = None if probabilities is None else reliability(probabilities[mask], right)
    return {"bins_before": reliability(answers.plain[mask], right), "bins_after": after}
