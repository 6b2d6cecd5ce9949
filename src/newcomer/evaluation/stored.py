"""What a trained model keeps of its calibration and its thresholds."""

from collections.abc import Mapping
from typing import Any

from newcomer.config import Config
from newcomer.errors import DatasetError, shown
from newcomer.evaluation.calibration import Curve
from newcomer.evaluation.classification import RelationThresholds
from newcomer.evaluation.fact_probability import Calibration
from newcomer.graph import Vocabulary
from newcomer.models.bundle import Bundle

CALIBRATION, THRESHOLDS = "calibration", "thresholds"  # where a model keeps them, among what was measured


def calibration_of(bundle: Bundle) -> Calibration | None:
    """A model's calibration; None where it was trained without validation."""
    content = bundle.metrics.get(CALIBRATION)
    return None if content is None else Calibration.from_dict(content, bundle.observed.relations)


def labelled_curve(bundle: Bundle) -> Curve | None:
    """The probability of triples half of which are true; None where no labels told which are."""
    found, calibration = bundle.metrics.get(THRESHOLDS), calibration_of(bundle)
    made_up = found is None or found.get("made_up", True)
    return None if made_up or calibration is None else calibration.triples


def thresholds_in(bundle: Bundle, relations: Vocabulary) -> RelationThresholds | None:
    """A model's thresholds for newcomers in the ids of these relations; None where it has none."""
    content = bundle.metrics.get(THRESHOLDS)
    if content is None:
        return None
    try:
        named = {str(name): float(value) for name, value in content["relations"].items()}
        each = {relations.id(name): value for name, value in named.items() if name in relations}
        return RelationThresholds(float(content["overall"]), each)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"the thresholds in metrics.json are none that newcomer wrote ({shown(str(error))})"
        raise DatasetError(f"{problem}; train the model again") from None


def decides_by_probability(metrics: Mapping[str, Any], config: Config) -> bool:
    """Whether probabilities, not scores, decide which triples are true: for a network trained among labels.

    Scores of the final model are on another scale than those that thresholds were found on; probabilities, which go by
    shares and ranks among answers, are not, nor are the scores of a triple classifier.
    """
    found, calibration = metrics.get(THRESHOLDS), metrics.get(CALIBRATION)
    if config.model.triple_classifier or not found or found.get("made_up", True):
        return False
    return calibration is not None and calibration.get("triples") is not None
