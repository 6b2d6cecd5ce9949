"""What each command says about the same newcomers with masked facts, and how far its probabilities can be believed.

A fact has one probability, whichever command gives it, but each shows other facts:

    predict     the best answers to each question that suggestions ask, whether it has an answer or not
    classify    verdicts of triples: the masked facts, and beside each the other answers to its question that predict
                lists; true from a probability of a half on, at the share of true ones that is found in such lists
    confidence  which newcomers have facts enough for an answer, and the likeliest facts of these and of the others
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from newcomer.evaluation.calibration import Probabilities, believed
from newcomer.evaluation.fact_probability import HALF
from newcomer.evaluation.metrics import mean
from newcomer.evaluation.questions import POOL, Likely, Prober, Question, best_answers, likeliest_among, settled
from newcomer.graph import Graph, Ids, Mask

PREDICTED = 10  # best answers to each question
PREDICT, CLASSIFY, CONFIDENCE = VERBS = ("predict", "classify", "confidence")
ENOUGH, TOO_FEW = ("enough", "too_few")  # facts for an answer, as confidence says
Missing = set[tuple[int, int]]  # oriented relations and answers that are true of a newcomer and not known


@dataclass(frozen=True, eq=False)
class Judged:
    """Facts about newcomers with the probability that a command gives them, a row a fact."""

    newcomer: Ids
    relation: Ids  # oriented
    answer: Ids
    probability: Probabilities
    right: Mask

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, float, bool]]) -> "Judged":
        """Of such rows."""
        columns = zip(*rows, strict=True) if rows else [()] * 5
        types = (np.int32, np.int32, np.int32, np.float64, bool)
        return cls(*(np.array(column, dtype=kind) for column, kind in zip(columns, types, strict=True)))


@dataclass(frozen=True, eq=False)
class VerbTest:
    """What predict and classify said of newcomers, and which of these confidence says have facts enough."""

    predicted: Judged
    classified: Judged
    enough: Mapping[int, bool]  # of each newcomer


@dataclass(frozen=True, eq=False)
class VerbRecorder:
    """Asks about one newcomer after another, each question once, and writes down what each command would say.

    ``masked`` are the facts that were masked, with the ids of the snapshot.
    """

    prober: Prober
    masked: Graph
    _predicted: list[tuple[int, int, int, float, bool]] = field(default_factory=list)
    _classified: list[tuple[int, int, int, float, bool]] = field(default_factory=list)
    _enough: dict[int, bool] = field(default_factory=dict)

    def ask(self, newcomer: int, relations: Sequence[int], missing: Missing, k: int) -> list[Likely]:
        """The k facts of a newcomer that are most likely missing, as `likeliest` has them."""
        hidden_along, hidden = self.masked.adjacency.of(newcomer)
        listed = []
        for relation in [*relations, *np.setdiff1d(hidden_along, relations).tolist()]:
            question = self.prober.questions.ask(newcomer, relation)
            answers = best_answers(self.prober, question, max(k, POOL), question.left_out)
            shown = [one.place for one in answers[:PREDICTED]]
            if (hidden_along == relation).any():
                self._classify(question, shown, hidden[hidden_along == relation].tolist(), missing)
            if relation in relations:
                listed.append(answers)
        found = likeliest_among(self.prober, newcomer, listed, k)
        for answers in listed:
            self._predict(newcomer, answers[:PREDICTED], missing)
        tied = self.prober.questions.is_tied(newcomer)
        self._enough[newcomer] = tied and len(found) > 0 and found[0].probability >= HALF
        return found

    def _predict(self, newcomer: int, answers: Iterable[Likely], missing: Missing) -> None:
        for one in (settled(self.prober, newcomer, answer) for answer in answers):
            right = (one.relation, one.place) in missing
            self._predicted.append((newcomer, one.relation, one.place, one.probability, right))

    def _classify(self, question: Question, shown: Sequence[int], hidden: Sequence[int], missing: Missing) -> None:
        places = np.array(list(dict.fromkeys([*hidden, *shown])))
        for place, probability in zip(places.tolist(), self.prober.probabilities(question, places), strict=True):
            right = (question.relation, place) in missing
            self._classified.append((question.entity, question.relation, place, float(probability), right))

    def found(self) -> VerbTest:
        """All that was said."""
        return VerbTest(Judged.of(self._predicted), Judged.of(self._classified), dict(self._enough))


def verb_figures(test: VerbTest, about: Ids, probability: Probabilities, right: Mask) -> dict[str, Any]:
    """How far each command can be believed; the columns are the likeliest facts: whom about, and whether right."""
    triples, enough = test.classified, np.array([test.enough[one] for one in about.tolist()], dtype=bool)
    is_true = triples.probability >= HALF
    groups = {ENOUGH: (enough, True), TOO_FEW: (~enough, False)}
    return {
        PREDICT: believed(test.predicted.probability, test.predicted.right),
        CLASSIFY: {
            **believed(triples.probability, triples.right),
            "accuracy": float(mean(is_true == triples.right)),
            "true": believed(triples.probability[is_true], triples.right[is_true]),
            "false": believed(triples.probability[~is_true], triples.right[~is_true]),
        },
        CONFIDENCE: {
            name: {"newcomers": sum(one is said for one in test.enough.values())}
            | believed(probability[mine], right[mine])
            for name, (mine, said) in groups.items()
        },
    }


def by_command(report: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """What a report of suggestions has of each command, by what it is called in tables."""
    verbs = report["verbs"]
    triples, confidence = verbs[CLASSIFY], verbs[CONFIDENCE]
    return [
        *((f"suggest: {'the' if one['k'] == 1 else one['k']} likeliest", one) for one in report["by_k"]),
        (f"{PREDICT}: {PREDICTED} best of each question", verbs[PREDICT]),
        (f"{CLASSIFY}: all triples", triples),
        (f"{CLASSIFY}: called true", triples["true"]),
        (f"{CLASSIFY}: called false", triples["false"]),
        *(
            (f"{CONFIDENCE}: {words} facts ({confidence[name]['newcomers']:,} newcomers)", confidence[name])
            for name, words in ((ENOUGH, "enough"), (TOO_FEW, "too few"))
        ),
    ]


class Bands(NamedTuple):
    """Bins of some commands side by side: the words for each band, and what each command has there."""

    commands: tuple[str, ...]
    rows: list[tuple[str, list[Mapping[str, Any] | None]]]


def bands_of(report: Mapping[str, Any]) -> Bands:
    """The bins of a report of suggestions: of the ten likeliest, of what predict lists, and of all triples."""
    listed = {f"suggest: {report['by_k'][-1]['k']} likeliest": report["by_k"][-1]}
    listed |= {name: report["verbs"][name] for name in (PREDICT, CLASSIFY)}
    bins = [{(one["low"], one["high"]): one for one in part["bins"]} for part in listed.values()]
    ends = sorted({key for part in bins for key in part})
    rows = [(f"{low:.1f} to {high:.1f}", [part.get((low, high)) for part in bins]) for low, high in ends]
    return Bands(tuple(listed), rows)
