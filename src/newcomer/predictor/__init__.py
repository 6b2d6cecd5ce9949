"""A trained model at work: newcomers are added by their facts, embedded, asked about and explained."""

from newcomer.predictor.answers import Added, Chain, Grounding, Neighbor, Reason, Similar, Verdict, Weighed
from newcomer.predictor.batching import NewcomerBatch, NewcomerBatches, NewcomerStream, check_relations
from newcomer.predictor.confidence import Confidence, Expected, Lesson
from newcomer.predictor.explain import Answer, Explanation, Suggestion
from newcomer.predictor.fact_store import FactError, UnknownEntityError, UnknownNameError
from newcomer.predictor.predictor import Predictor, load

__all__ = [
    "Added",
    "Answer",
    "Chain",
    "Confidence",
    "Expected",
    "Explanation",
    "FactError",
    "Grounding",
    "Lesson",
    "Neighbor",
    "NewcomerBatch",
    "NewcomerBatches",
    "NewcomerStream",
    "Predictor",
    "Reason",
    "Similar",
    "Suggestion",
    "UnknownEntityError",
    "UnknownNameError",
    "Verdict",
    "Weighed",
    "check_relations",
    "load",
]
