"""A trained model at work: newcomers are added by their facts, embedded, asked about and explained."""

from newcomer.predictor.answers import Added, Answer, Grounding, Neighbor, Suggestion, Verdict, Way, Weighed
from newcomer.predictor.book import FactError
from newcomer.predictor.confidence import Confidence, Lesson
from newcomer.predictor.passing import Passing
from newcomer.predictor.predictor import Predictor, load
from newcomer.predictor.reasons import Because
from newcomer.predictor.visits import Visit, Visitors, check_relations

__all__ = [
    "Added",
    "Answer",
    "Because",
    "Confidence",
    "FactError",
    "Grounding",
    "Lesson",
    "Neighbor",
    "Passing",
    "Predictor",
    "Suggestion",
    "Verdict",
    "Visit",
    "Visitors",
    "Way",
    "Weighed",
    "check_relations",
    "load",
]
