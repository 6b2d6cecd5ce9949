"""newcomer: embed, complete and explain entities that arrive in a knowledge graph after training.

    model = newcomer.train("sample")                        # or newcomer.load("runs/sample")
    newcomer.evaluate(model)["metrics"]
    model.add([("Atlantis", "borders", "Portugal")])
    model.suggest("Atlantis")

The names below load on first use, so that ``import newcomer`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_NAMES_OF = {
    "newcomer.api": ("ask_again", "evaluate", "grow", "growth_of", "mine_rules", "open", "train"),
    "newcomer.config": ("Config",),
    "newcomer.data": ("load_dataset", "read_graph", "split_graph"),
    "newcomer.errors": ("NewcomerError",),
    "newcomer.graph": ("Graph", "InductiveDataset", "TripleArray", "Vocabulary"),
    "newcomer.predictor": ("Predictor", "load"),
}

if TYPE_CHECKING:
    from newcomer.api import ask_again, evaluate, grow, growth_of, mine_rules, open, train
    from newcomer.config import Config
    from newcomer.data import load_dataset, read_graph, split_graph
    from newcomer.errors import NewcomerError
    from newcomer.graph import Graph, InductiveDataset, TripleArray, Vocabulary
    from newcomer.predictor import Predictor, load

__all__ = [
    "Config",
    "Graph",
    "InductiveDataset",
    "NewcomerError",
    "Predictor",
    "TripleArray",
    "Vocabulary",
    "__version__",
    "ask_again",
    "evaluate",
    "grow",
    "growth_of",
    "load",
    "load_dataset",
    "mine_rules",
    "open",
    "read_graph",
    "split_graph",
    "train",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    for module, names in _NAMES_OF.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'newcomer' has no attribute {name!r}")
