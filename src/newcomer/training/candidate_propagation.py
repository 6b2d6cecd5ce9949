"""Training propagation on a CPU in any graph: by candidates that are drawn for each query.

The network has three layers and is sparse, so that the score of a candidate follows from few pairs of entity and query
(`newcomer.models.propagation.blocks`). The queries of a step are split into parts, whose gradients are found in threads
of their own and then added in the order of the parts: the sum does not depend on the number of threads.
"""

from collections.abc import Mapping
from enum import Enum

import numpy as np
import torch
from torch import Tensor

from newcomer.graph import Graph
from newcomer.models.propagation.blocks import find_blocks
from newcomer.models.propagation.edges import Ids, PropagationEdges
from newcomer.models.propagation.network import FEW_LAYERS
from newcomer.rules.limits import in_threads, thread_count
from newcomer.training.candidates import Candidates, CandidateSampler
from newcomer.training.propagation import PropagationTrainer, frontier_stays_local

PARTS = 4  # of the queries of a step
# Where this is 1.7 million, a step takes 75 ms either way; a network learned by candidates answers many times sooner.
LARGE, ENTITY = 1_200_000, 8  # edges, and how many of them cost what an entity does


class Way(Enum):
    """Whom a network is worked out for while it is trained."""

    EVERYONE = "all entities"
    FRONTIER = "all that messages reach"
    CANDIDATES = "candidates that are drawn"


class CandidateTrainer(PropagationTrainer):
    """Trains on a CPU, wherever the rest does."""

    LAYERS, RATE, WARM_STEPS = FEW_LAYERS, 1e-2, 0.1

    def __init__(
        self,
        observed: Graph,
        num_seen: int,
        max_steps: int,
        seed: int,
        threads: int | None = None,
        hub_facts: int = 0,
    ) -> None:
        super().__init__(observed, num_seen, max_steps, seed, torch.device("cpu"), True, hub_facts)
        self.sampler, self.threads = CandidateSampler(self.graph), thread_count(threads)

    def _learn(self, queries: Tensor, masked: Tensor, degrees: Tensor, number: int) -> Tensor:
        asked = queries.numpy()
        drawn = self.sampler.draw(asked, np.random.default_rng([self.seed, number, 3]))
        edges = self.edges.with_weights(torch.ones_like(self.edges.weights).index_fill_(0, masked, 0.0), degrees)

        def gradients_of(part: Ids) -> tuple[Tensor, tuple[Tensor, ...]]:
            candidates = Candidates(drawn.entities[part], drawn.weights[part])
            return self._gradients(edges, 1 + degrees, asked[part], candidates)

        parts = [part for part in np.array_split(np.arange(len(asked)), PARTS) if len(part)]
        found = in_threads(gradients_of, parts, self.threads)
        for place, parameter in enumerate(self.network.parameters()):
            gradient = sum((gradients[place] for _, gradients in found), start=torch.zeros_like(parameter))
            parameter.grad = gradient / len(asked)
        return sum((loss for loss, _ in found), start=torch.zeros(())) / len(asked)

    def _gradients(
        self, edges: PropagationEdges, degrees: Tensor, queries: Ids, candidates: Candidates
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The sum of the losses of some queries, and its gradients by all parameters."""
        torch.set_num_threads(1)  # in every thread anew; sums would depend on more
        sources, relations = (torch.from_numpy(np.ascontiguousarray(one)) for one in queries.T[:2])
        blocks = find_blocks(edges, sources.numpy(), candidates.entities)
        scores = self.network.candidate_scores(blocks.layers, sources, relations, degrees)
        count = len(queries)
        reached, others = scores[:-count], scores[-count:]
        place = torch.from_numpy(blocks.layers[-1].queries), torch.from_numpy(blocks.columns)
        table = others[:, None].expand(count, candidates.entities.shape[1]).index_put(place, reached)
        # Where messages reach all entities, there still is one more candidate: there are newcomers without any edge.
        table = torch.cat([table + torch.from_numpy(candidates.weights), others[:, None]], dim=1)
        loss = (torch.logsumexp(table, dim=1) - table[:, 0]).sum()
        return loss.detach(), torch.autograd.grad(loss, list(self.network.parameters()), materialize_grads=True)


def way_of(tensors: Mapping[str, Tensor]) -> Way | None:
    """How the network of these tensors was trained; None where there is none."""
    if "sparse" not in tensors:
        return None
    if not bool(tensors["sparse"]):
        return Way.EVERYONE
    return Way.CANDIDATES if len(tensors["scales"]) == FEW_LAYERS else Way.FRONTIER


def chosen_way(observed: Graph, num_seen: int, device: torch.device, hub_facts: int = 0) -> Way:
    """How a network of this graph is trained on a device: in a large one by candidates, though a GPU is there."""
    if device.type != "cpu" and 2 * len(observed) + ENTITY * num_seen <= LARGE:
        return Way.EVERYONE
    return Way.FRONTIER if frontier_stays_local(observed, num_seen, hub_facts) else Way.CANDIDATES


def propagation_trainer(
    observed: Graph,
    num_seen: int,
    max_steps: int,
    seed: int,
    device: torch.device,
    way: Way | None = None,
    threads: int | None = None,
    hub_facts: int = 0,
) -> PropagationTrainer:
    """A trainer that goes the way that is given, or the one that suits graph and device."""
    way = chosen_way(observed, num_seen, device, hub_facts) if way is None else way
    if way is Way.CANDIDATES:
        return CandidateTrainer(observed, num_seen, max_steps, seed, threads, hub_facts)
    return PropagationTrainer(observed, num_seen, max_steps, seed, device, way is Way.FRONTIER, hub_facts)
