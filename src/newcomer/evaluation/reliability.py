"""How far a model's probabilities can be believed: on the questions of test, before and after calibration.

The answers are those that a user is shown, the ten best of each question without what is known already; right is what
the filter holds for true. They are also taken by how much is known of the entity, and the first answers by themselves:
among ten most are clearly wrong, which is easily said.

Classified triples are taken as they are, by the probability of their verdict; right are those that are true.
"""

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from newcomer.evaluation.alignment import AlignedModel
from newcomer.evaluation.breakdown import facts_groups, known_facts
from newcomer.evaluation.calibration import (
    Answers,
    Calibration,
    Curve,
    Overheard,
    Probabilities,
    calibration_error,
    evidence,
    judged_evidence,
    reliability,
    triple_rows,
    uncalibrated,
)
from newcomer.evaluation.classification import ClassificationResult
from newcomer.evaluation.ranking import Queries
from newcomer.graph import Graph, InductiveDataset, Mask

SHOWN = 10  # answers a question


def overheard(scorer: AlignedModel, dataset: InductiveDataset, true: Graph) -> Overheard:
    """A model's scorer for ranking, with what it answers taken down."""
    return Overheard(scorer, dataset, true, scorer.embedding is not None, SHOWN)


def shown_answers(heard: Overheard, scorer: AlignedModel, queries: Queries) -> Answers:
    """Of all that was heard the answers to these questions, as far as the model has the relation."""
    answers = heard.answers()
    return answers.where(_asked(answers, queries) & scorer.alignment.knows(answers.relation))


def _asked(answers: Answers, queries: Queries) -> Mask:
    size = 1 + max(int(answers.entity.max(initial=0)), int(queries.entity.max(initial=0)))
    mine, wanted = (one.relation.astype(np.int64) * size + one.entity for one in (answers, queries))
    return np.isin(mine, wanted)


def probabilities_of(
    answers: Answers, calibration: Calibration | None, relations: npt.NDArray[np.integer]
) -> Probabilities | None:
    """Calibrated probabilities; ``relations`` has the model's id of each oriented relation of the data set."""
    return None if calibration is None else _read_off(calibration.answers, answers, relations)


def _read_off(curve: Curve, answers: Answers, relations: npt.NDArray[np.integer]) -> Probabilities:
    return curve.probabilities(answers.evidence, relations[answers.relation].astype(np.int32))


def judged_triples(scorer: AlignedModel, dataset: InductiveDataset, result: ClassificationResult) -> Answers:
    """Classified triples as answers, one a question; as far as the model has the relation.

    Of the ends the newcomer counts as the one that is asked about; the head, where that does not decide.
    """
    places = np.flatnonzero(scorer.alignment.knows(result.triples.relations))
    triples, shares = result.triples.take(places), scorer.embedding is not None
    found = judged_evidence(result.scores[places])
    plain = uncalibrated(result.scores, places, shares=False)
    if scorer.classifier is None:
        for place, row, left_out in triple_rows(dataset, scorer, triples):
            answer = triples.tails[place : place + 1]
            found[place] = evidence(row, left_out, answer)[0]
            if shares:
                plain[place] = uncalibrated(row, answer, shares)[0]
    only_tail = ~dataset.is_seen[triples.tails] & dataset.is_seen[triples.heads]
    entities = np.where(only_tail, triples.tails, triples.heads)
    first = np.zeros(len(triples), dtype=np.int64)
    return Answers(np.arange(len(triples)), entities, triples.relations, first, found, plain, result.labels[places])


def triple_probabilities(
    answers: Answers, calibration: Calibration | None, relations: npt.NDArray[np.integer]
) -> Probabilities | None:
    """Calibrated probabilities of triples; None also where no false triple could be made up to learn them from."""
    curve = None if calibration is None else calibration.triples
    return None if curve is None else _read_off(curve, answers, relations)


def triples_report(triples: Answers, probabilities: Probabilities | None, dataset: InductiveDataset) -> dict[str, Any]:
    """As `calibration_report`, of triples that were classified."""
    everything = np.ones(len(triples), dtype=bool)
    codes, names = facts_groups(known_facts(dataset)[triples.entity])
    groups = [
        {"group": names[code], "triples": _part(triples, probabilities, codes == code)}
        for code in np.unique(codes).tolist()
    ]
    return {
        "calibrated": probabilities is not None,
        "triples": {**_part(triples, probabilities, everything), **_bins(triples, probabilities, everything)},
        "known_facts": groups,
    }


def calibration_report(
    answers: Answers, probabilities: Probabilities | None, dataset: InductiveDataset
) -> dict[str, Any]:
    """Errors and bins of the answers shown, of the first ones, and by number of known facts.

    Where the model is not calibrated, what is said "after" is null.
    """
    everything, first = np.ones(len(answers), dtype=bool), answers.place == 0
    codes, names = facts_groups(known_facts(dataset)[answers.entity])
    groups = [
        {
            "group": names[code],
            "shown": _part(answers, probabilities, codes == code),
            "first": _part(answers, probabilities, first & (codes == code)),
        }
        for code in np.unique(codes).tolist()
    ]
    return {
        "calibrated": probabilities is not None,
        "shown": {**_part(answers, probabilities, everything), **_bins(answers, probabilities, everything)},
        "first": {**_part(answers, probabilities, first), **_bins(answers, probabilities, first)},
        "known_facts": groups,
    }


def _part(answers: Answers, probabilities: Probabilities | None, mask: Mask) -> dict[str, Any]:
    right = answers.right[mask]
    return {
        "questions": len(np.unique(answers.question[mask])),
        "answers": len(right),
        "right": _mean(right),
        "ece_before": calibration_error(answers.plain[mask], right),
        "ece_after": None if probabilities is None else calibration_error(probabilities[mask], right),
        "probability_before": _mean(answers.plain[mask]),
        "probability_after": None if probabilities is None else _mean(probabilities[mask]),
    }


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _bins(answers: Answers, probabilities: Probabilities | None, mask: Mask) -> dict[str, Any]:
    right = answers.right[mask]
    before = [asdict(one) for one in reliability(answers.plain[mask], right)]
    after = None if probabilities is None else [asdict(one) for one in reliability(probabilities[mask], right)]
    return {"bins_before": before, "bins_after": after}
