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

_MODULE_OF = {
    "Config": "newcomer.config",
    "Graph": "newcomer.graph",
    "InductiveDataset": "newcomer.graph",
    "NewcomerError": "newcomer.errors",
    "Predictor": "newcomer.predictor",
    "TripleArray": "newcomer.graph",
    "Vocabulary": "newcomer.graph",
    "evaluate": "newcomer.api",
    "load": "newcomer.predictor",
    "load_dataset": "newcomer.data",
    "mine_rules": "newcomer.api",
    "read_graph": "newcomer.data",
    "split_graph": "newcomer.data",
    "train": "newcomer.api",
}

if TYPE_CHECKING:
    from newcomer.api import evaluate, mine_rules, train
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
    "evaluate",
    "load",
    "load_dataset",
    "mine_rules",
    "read_graph",
    "split_graph",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'newcomer' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
