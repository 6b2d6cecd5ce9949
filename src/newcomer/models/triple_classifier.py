"""The triple classifier: small networks that tell from features of a pair whether a relation holds between the two."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.graph import Graph, Ids
from newcomer.models.pair_features import PairFeatures

MEMBERS, HIDDEN, RELATION = 4, 128, 16
DROPPED = 0.1
FURTHEST = 8.0  # standard deviations: features beyond are clipped, as none like them was trained on
BATCH = 4096  # triples whose features are found at once
PREFIX = "triple_classifier."  # of the names of its weights


class Member(nn.Module):
    """One of the networks; they differ by their first weights and by dropout."""

    def __init__(self, num_relations: int, width: int) -> None:
        super().__init__()
        self.relations = nn.Embedding(num_relations, RELATION)
        self.first = nn.Linear(width + RELATION, HIDDEN)
        self.second = nn.Linear(HIDDEN, HIDDEN)
        self.last = nn.Linear(HIDDEN, 1)

    def forward(self, features: Tensor, relations: Tensor) -> Tensor:
        """(n,): log odds."""
        hidden = functional.relu(self.first(torch.cat([features, self.relations(relations)], dim=1)))
        hidden = functional.relu(self.second(functional.dropout(hidden, DROPPED, self.training)))
        odds: Tensor = self.last(hidden)
        return odds[:, 0]


class TripleClassifier(nn.Module):
    """Log odds that (head, relation, tail) is true, by features of the pair (head, tail): the mean of the members'."""

    mean: Tensor
    scale: Tensor

    def __init__(self, num_relations: int, width: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(Member(num_relations, width) for _ in range(MEMBERS))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def standardise_by(self, features: Tensor) -> None:
        """Set mean and scale to those of the features that will be trained on, (n, width)."""
        self.mean = features.mean(dim=0)
        self.scale = features.std(dim=0) + 0.01  # some never differ

    def by_member(self, features: Tensor, relations: Tensor) -> Tensor:
        """(members, n): log odds by each, of features (n, width) and relations (n,)."""
        standardised = ((features - self.mean) / self.scale).clamp(-FURTHEST, FURTHEST)
        return torch.stack([member(standardised, relations) for member in self.members])

    def forward(self, features: Tensor, relations: Tensor) -> Tensor:
        """(n,): log odds by all."""
        return self.by_member(features, relations).mean(dim=0)


class TripleClassifierScorer:
    """Scores triples by a triple classifier and all known facts, newcomers' included."""

    def __init__(self, classifier: TripleClassifier, known: Graph) -> None:
        self.classifier, self.features = classifier, PairFeatures(known)

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float64]:
        """(n,): log odds that each triple is true, each by itself: products of matrices round by the number of rows."""
        found = []
        for start in range(0, len(heads), BATCH):
            part = slice(start, start + BATCH)
            features = torch.from_numpy(self.features.of(heads[part], tails[part]))
            kinds = torch.from_numpy(relations[part].astype(np.int64))
            with torch.no_grad():
                odds = [
                    self.classifier(*one) for one in zip(torch.split(features, 1), torch.split(kinds, 1), strict=True)
                ]
            found.append(torch.cat(odds).double().numpy())
        return np.concatenate(found) if found else np.empty(0)
