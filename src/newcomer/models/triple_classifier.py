"""A judge: small networks that say from what is seen around two entities whether a relation holds between them."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.errors import DatasetError
from newcomer.graph import Graph, Ids
from newcomer.models.pair_features import Surroundings, width_of

MEMBERS, HIDDEN, RELATION = 4, 128, 16
DROPPED = 0.1
FURTHEST = 8.0  # standard deviations: what lies beyond was not practised on


class Member(nn.Module):
    """One of the networks; they differ by how they started and by what they dropped."""

    def __init__(self, num_relations: int, width: int) -> None:
        super().__init__()
        self.relations = nn.Embedding(num_relations, RELATION)
        self.first = nn.Linear(width + RELATION, HIDDEN)
        self.second = nn.Linear(HIDDEN, HIDDEN)
        self.last = nn.Linear(HIDDEN, 1)

    def forward(self, seen: Tensor, relations: Tensor) -> Tensor:
        """(n,): log odds."""
        hidden = functional.relu(self.first(torch.cat([seen, self.relations(relations)], dim=1)))
        hidden = functional.relu(self.second(functional.dropout(hidden, DROPPED, self.training)))
        odds: Tensor = self.last(hidden)
        return odds[:, 0]


class Judge(nn.Module):
    """Log odds that (head, relation, tail) is true, by numbers about its ends: the mean of what the members say."""

    mean: Tensor
    scale: Tensor

    def __init__(self, num_relations: int, width: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(Member(num_relations, width) for _ in range(MEMBERS))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def measure(self, numbers: Tensor) -> None:
        """Take note of how large the numbers are that will be learned from, (n, width)."""
        self.mean = numbers.mean(dim=0)
        self.scale = numbers.std(dim=0) + 0.01  # some never differ

    def each(self, numbers: Tensor, relations: Tensor) -> Tensor:
        """(members, n): log odds by each, by numbers (n, width) and relations (n,)."""
        seen = ((numbers - self.mean) / self.scale).clamp(-FURTHEST, FURTHEST)
        return torch.stack([member(seen, relations) for member in self.members])

    def forward(self, numbers: Tensor, relations: Tensor) -> Tensor:
        """(n,): log odds by all."""
        return self.each(numbers, relations).mean(dim=0)


AT_ONCE = 4096  # triples that are judged together

JUDGE = "triple_classifier."  # the names of its weights begin so


class TripleClassifierScorer:
    """A judge at work: scores triples by all that is known, whoever told it."""

    def __init__(self, judge: Judge, known: Graph) -> None:
        self.judge, self.surroundings = judge, Surroundings(known)

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float64]:
        """(n,): log odds that each triple is true."""
        found = np.empty(len(heads), dtype=np.float64)
        for start in range(0, len(heads), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            numbers = torch.from_numpy(self.surroundings.of(heads[part], tails[part]))
            asked = torch.from_numpy(relations[part].astype(np.int64))
            with torch.no_grad():
                found[part] = self.judge(numbers, asked).numpy()
        return found


def triple_classifier_weights(judge: Judge) -> dict[str, npt.NDArray[np.floating]]:
    """Its numbers by name, as a model keeps them."""
    return {f"{JUDGE}{name}": value.numpy() for name, value in judge.state_dict().items()}


def triple_classifier_of(weights: Mapping[str, npt.NDArray[np.floating]], num_relations: int) -> Judge | None:
    """The judge that a model keeps, if it has one."""
    own = {name.removeprefix(JUDGE): value for name, value in weights.items() if name.startswith(JUDGE)}
    if not own:
        return None
    judge = Judge(num_relations, width_of(num_relations))
    try:
        judge.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in own.items()})
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:160]
        raise DatasetError(f"the judge does not fit the relations ({reason}); train the model again") from None
    return judge.eval()
