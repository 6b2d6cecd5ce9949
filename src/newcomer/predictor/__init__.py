"""A trained model at work: newcomers are added by their facts, embedded, asked about and explained."""

from newcomer.predictor.answers import Added, Answer, Grounding, Neighbor, Suggestion, Verdict, Weighed
from newcomer.predictor.predictor import Predictor, load
from newcomer.predictor.reasons import Because

__all__ = [
    "Added",
    "Answer",
    "Because",
    "Grounding",
    "Neighbor",
    "Predictor",
    "Suggestion",
    "Verdict",
    "Weighed",
    "load",
]
