"""A judge: small networks that say from what is seen around two entities whether a relation holds between them."""

import torch
from torch import Tensor, nn
from torch.nn import functional

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
