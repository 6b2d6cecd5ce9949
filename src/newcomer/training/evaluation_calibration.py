"""How far a model's truths can be believed: on the questions of test, before and after calibration.

The answers are those that a user is shown, the ten best of each question without what is known already; right is what
the filter holds for true. They are also taken by how much is known of the entity, and the first answers by themselves:
among ten most are clearly wrong, which is easily said.
"""

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from newcomer.graph import Graph, InductiveDataset, Mask
from newcomer.tasks.breakdown import facts_groups, known_facts
from newcomer.tasks.calibration import Answers, Calibration, Overheard, Truths, calibration_error, reliability
from newcomer.tasks.link_prediction import Queries
from newcomer.training.evaluation_scorer import ModelWorldScorer

SHOWN = 10  # answers a question


def overheard(scorer: ModelWorldScorer, dataset: InductiveDataset, true: Graph) -> Overheard:
    """A model's scorer for ranking, with what it answers taken down."""
    return Overheard(scorer, dataset, true, scorer.network is not None, SHOWN)


def shown_answers(heard: Overheard, scorer: ModelWorldScorer, queries: Queries) -> Answers:
    """Of all that was heard the answers to these questions, as far as the model has the relation."""
    answers = heard.answers()
    return answers.where(_asked(answers, queries) & scorer.world.knows(answers.relation))


def _asked(answers: Answers, queries: Queries) -> Mask:
    size = 1 + max(int(answers.entity.max(initial=0)), int(queries.entity.max(initial=0)))
    mine, wanted = (one.relation.astype(np.int64) * size + one.entity for one in (answers, queries))
    return np.isin(mine, wanted)


def truths_of(answers: Answers, calibration: Calibration | None, relations: npt.NDArray[np.integer]) -> Truths | None:
    """Calibrated truths; ``relations`` has the model's id of each oriented relation of the data set."""
    if calibration is None:
        return None
    return calibration.answers.truths(answers.evidence, relations[answers.relation].astype(np.int32))


def calibration_report(answers: Answers, truths: Truths | None, dataset: InductiveDataset) -> dict[str, Any]:
    """Errors and bins of the answers shown, of the first ones, and by number of known facts.

    Where the model is not calibrated, what is said "after" is null.
    """
    everything, first = np.ones(len(answers), dtype=bool), answers.place == 0
    codes, names = facts_groups(known_facts(dataset)[answers.entity])
    groups = [
        {
            "group": names[code],
            "shown": _part(answers, truths, codes == code),
            "first": _part(answers, truths, first & (codes == code)),
        }
        for code in np.unique(codes).tolist()
    ]
    return {
        "calibrated": truths is not None,
        "shown": {**_part(answers, truths, everything), **_bins(answers, truths, everything)},
        "first": {**_part(answers, truths, first), **_bins(answers, truths, first)},
        "known_facts": groups,
    }


def _part(answers: Answers, truths: Truths | None, mask: Mask) -> dict[str, Any]:
    right = answers.right[mask]
    return {
        "questions": len(np.unique(answers.question[mask])),
        "answers": len(right),
        "right": _mean(right),
        "ece_before": calibration_error(answers.plain[mask], right),
        "ece_after": None if truths is None else calibration_error(truths[mask], right),
        "truth_before": _mean(answers.plain[mask]),
        "truth_after": None if truths is None else _mean(truths[mask]),
    }


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _bins(answers: Answers, truths: Truths | None, mask: Mask) -> dict[str, Any]:
    right = answers.right[mask]
    before = [asdict(one) for one in reliability(answers.plain[mask], right)]
    after = None if truths is None else [asdict(one) for one in reliability(truths[mask], right)]
    return {"bins_before": before, "bins_after": after}
