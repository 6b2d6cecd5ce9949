"""newcomer: embed, complete and explain entities that arrive in a knowledge graph after training.

The names below load on first use, so that ``import newcomer`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_HOME_OF = {
    "Graph": "newcomer.graph",
    "InductiveDataset": "newcomer.graph",
    "TripleArray": "newcomer.graph",
    "Vocabulary": "newcomer.graph",
    "NewcomerError": "newcomer.errors",
    "Predictor": "newcomer.predictor",
    "load": "newcomer.predictor",
    "load_dataset": "newcomer.data",
    "read_graph": "newcomer.data",
    "split_graph": "newcomer.data",
}

if TYPE_CHECKING:
    from newcomer.data import load_dataset, read_graph, split_graph
    from newcomer.errors import NewcomerError
    from newcomer.graph import Graph, InductiveDataset, TripleArray, Vocabulary
    from newcomer.predictor import Predictor, load

__all__ = [
    "Graph",
    "InductiveDataset",
    "NewcomerError",
    "Predictor",
    "TripleArray",
    "Vocabulary",
    "__version__",
    "load",
    "load_dataset",
    "read_graph",
    "split_graph",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'newcomer' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
