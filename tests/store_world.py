"""Stores for tests: what a model has seen, facts and answers."""

from typing import Any

from newcomer.store import Change, GivenAnswer


def is_seen(name: str) -> bool:
    """What the model of these tests was trained on."""
    return name.startswith("seen")


def added(store: Any, *facts: str, **options: Any) -> Change:
    """Add facts that are written as `head relation tail`."""
    return store.add([fact.split() for fact in facts], is_seen=is_seen, **{"who": "ann", **options})


def an_answer(entity: str = "a", probability: float = 0.5, **parts: Any) -> GivenAnswer:
    """An answer to `entity lives_in ?`."""
    given = GivenAnswer(entity, "lives_in", "tails", "seen1", 1, probability, probability, "as rule 7 infers")
    return given._replace(**parts)
