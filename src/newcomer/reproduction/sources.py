"""The data sets of the plans: found in a folder, or cut from a graph that is there.

``datasets.toml`` says which sets can be cut, and which graph holds all that is true of each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from newcomer.data import LoadedDataset, SplitRule, read_dataset, split_graph
from newcomer.data.catalogue import entry, find_folder, names
from newcomer.errors import DatasetError, NewcomerError
from newcomer.evaluation.ranking import align
from newcomer.files import looking_at
from newcomer.graph import Graph, InductiveDataset
from newcomer.models.bundle import dataset_hash
from newcomer.reproduction.plans import read_toml

FILES = "files"


def stated_about(name: str) -> Mapping[str, Any]:
    """The graph it was cut from (``original``), how (``cut``), and what readers must know (``note``), where stated."""
    found: Mapping[str, Any] = read_toml("datasets.toml").get(name, {})
    return found


@dataclass(frozen=True, eq=False)
class Source:
    """A data set, and whether it was read from files or how it was cut."""

    loaded: LoadedDataset
    origin: str

    @property
    def dataset(self) -> InductiveDataset:
        return self.loaded.dataset


class Sources:
    """Data sets by name: those in ``root``, or without one wherever names are looked for.

    The last one and all original graphs stay in memory: cells come data set by data set.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root
        self._last: tuple[str, Source] | None = None
        self._graphs: dict[str, InductiveDataset] = {}
        self._digests: dict[str, str] = {}

    def get(self, name: str) -> Source:
        """The data set; one that cannot be had is a `DatasetError` that says what is missing."""
        if self._last is None or self._last[0] != name:
            self._last = None  # two large ones need not be held at once
            self._last = (name, self._made(name))
        return self._last[1]

    def digest(self, name: str) -> str:
        """A SHA-256 of its content."""
        if name not in self._digests:
            self._digests[name] = dataset_hash(self.get(name).dataset)
        return self._digests[name]

    def full_graph(self, name: str) -> Graph | None:
        """All that is true, with the ids of the data set; `None` where the original graph is not there."""
        original = stated_about(name).get("original")
        if original is None:
            return None
        try:
            whole = self._graph(original)
        except NewcomerError:
            return None
        return align(whole.known(), self.get(name).dataset)

    def _made(self, name: str) -> Source:
        stated = stated_about(name)
        try:
            folder = self._folder(name)
        except NewcomerError:
            if "cut" not in stated:
                raise
        else:
            return Source(read_dataset(folder, name=name), FILES)
        rule, whole, published = SplitRule(**stated["cut"]), self._graph(stated["original"]), stated.get("newcomers_of")
        if published is None:
            newcomers, how = None, f"{rule.unseen}, {rule.rate} %, seed {rule.seed}"
        else:
            others = self._graph(published)
            newcomers, how = whole.entities.ids(others.entities.names_of(others.newcomers)), f"newcomers of {published}"
        dataset = replace(split_graph(whole, rule, newcomers), name=name)
        how += ", test triples that are not drawn kept" if rule.keep_test else ""
        return Source(LoadedDataset(dataset, "split", {}), f"cut from {whole.name} ({how})")

    def _graph(self, name: str) -> InductiveDataset:
        if name not in self._graphs:
            self._graphs[name] = read_dataset(self._folder(name), name=name).dataset
        return self._graphs[name]

    def _folder(self, name: str) -> Path:
        if self.root is None:
            return find_folder(name)
        folder = self.root / name
        with looking_at(folder):
            if folder.is_dir():
                return folder
        step = entry(name).next_step if name in names() else "put it there"
        raise DatasetError(f"{folder}: is not there; {step}")
