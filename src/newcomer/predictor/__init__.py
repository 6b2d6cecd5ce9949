"""A trained model at work: newcomers are added by their facts, embedded, asked about and explained."""

from newcomer.predictor.answers import Added, Answer, Grounding, Neighbor, Suggestion, Verdict, Weighed
from newcomer.predictor.confidence import Confidence, Lesson
from newcomer.predictor.predictor import Predictor, load
from newcomer.predictor.reasons import Because
from newcomer.predictor.visits import Visit, Visitors, check_relations

__all__ = [
    "Added",
    "Answer",
    "Because",
    "Confidence",
    "Grounding",
    "Lesson",
    "Neighbor",
    "Predictor",
    "Suggestion",
    "Verdict",
    "Visit",
    "Visitors",
    "Weighed",
    "check_relations",
    "load",
]
