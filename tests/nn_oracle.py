"""Plain loops, written from the formulas, that the fast paths of the learned half are compared with."""

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from newcomer.models.baselines import LANEncoder, LSTMEncoder, NeighborEncoder, scrambled
from newcomer.models.embedding.decoders import DECODERS, Decoder
from newcomer.models.embedding.encoder import Edges
from newcomer.models.embedding.foldin import FoldInEncoder
from newcomer.models.embedding.foldin_solver import RIDGE
from newcomer.models.embedding.model import ENCODERS
from newcomer.models.sparse import Rows
from newcomer.models.vn.layers import QueryLayer, StructureLayer

Edge = tuple[int, int, float]  # relation, neighbour, weight


def one_thread() -> Iterator[None]:
    """A fixture: tiny tensors gain nothing from threads, and lose much when the machine has other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows_of(lists: list[list[int]], width: int) -> Rows:
    offsets = torch.tensor([0, *(len(one) for one in lists)]).cumsum(0)
    return Rows(offsets, torch.tensor([c for one in lists for c in one], dtype=torch.int64), width)


def edges_of(lists: list[list[Edge]], width: int, dtype: torch.dtype = torch.float64) -> Edges:
    flat = [edge for one in lists for edge in one]
    rows = rows_of([[column for _, column, _ in one] for one in lists], width)
    relations = torch.tensor([relation for relation, _, _ in flat], dtype=torch.int64)
    return Edges(rows, relations, torch.tensor([weight for _, _, weight in flat], dtype=dtype))


def lists_of(edges: Edges) -> list[list[Edge]]:
    """The edges of each row, those without weight left out."""
    flat = list(zip(edges.relations.tolist(), edges.rows.columns.tolist(), edges.weights.tolist(), strict=True))
    offsets = edges.rows.offsets.tolist()
    rows = [flat[start:stop] for start, stop in pairwise(offsets)]
    return [[edge for edge in row if edge[2] > 0] for row in rows]


def random_edges(
    seed: int, num_rows: int = 7, width: int = 7, relations: int = 3, dtype: torch.dtype = torch.float64
) -> Edges:
    """Row 0 is empty, row 1 has only hidden edges, row 2 loops to itself twice; weights are 0, between, or 1."""
    generator = torch.Generator().manual_seed(seed)

    def draw(below: int) -> int:
        return int(torch.randint(below, (1,), generator=generator))

    def edge(weight: float | None = None) -> Edge:
        chosen = (0.0, 0.3, 1.0, 1.0)[draw(4)] if weight is None else weight
        return draw(2 * relations), draw(width), chosen

    lists = [[edge() for _ in range(1 + draw(6))] for _ in range(num_rows)]
    lists[0] = []
    if num_rows > 2:
        lists[1] = [edge(0.0), edge(0.0)]
        lists[2] += [(0, 2, 1.0), (relations, 2, 1.0), (0, lists[2][0][1], 0.5)]
    return edges_of(lists, width, dtype)


def structure_loop(layer: StructureLayer, edges: Edges, vectors: Tensor, own: Tensor) -> Tensor:
    result = []
    for row, around in enumerate(lists_of(edges)):
        total = torch.zeros_like(own[row])
        for relation, neighbor, weight in around:
            total = total + layer.alpha[relation] * weight * vectors[neighbor]
            if layer.shifts is not None:
                total = total + weight * layer.shifts[relation]
        if around:
            total = total / sum(weight for _, _, weight in around)
        result.append(torch.tanh(total @ layer.weight + own[row] @ layer.weight))
    return torch.stack(result)


def query_loop(layer: QueryLayer, edges: Edges, vectors: Tensor, entities: Tensor, queries: Tensor) -> Tensor:
    around, result = lists_of(edges), []
    u = layer.attention.reshape(-1)
    for entity, query in zip(entities.tolist(), queries.tolist(), strict=True):
        raised = []
        for _, neighbor, weight in around[entity]:
            parts = [vectors[entity] @ layer.entity_map, layer.queries[query] @ layer.query_map]
            beta = u @ torch.cat([*parts, vectors[neighbor] @ layer.entity_map])
            raised.append(weight * torch.exp(beta if beta > 0 else 0.2 * beta))
        total = torch.zeros_like(vectors[0])
        for part, (_, neighbor, _) in zip(raised, around[entity], strict=True):
            total = total + part / sum(raised) * vectors[neighbor]
        result.append(total + vectors[entity] if layer.residual else total)
    return torch.stack(result)


def transformed(encoder: NeighborEncoder, vectors: Tensor, relation: int, neighbor: int) -> Tensor:
    normal = encoder.normals[relation] / encoder.normals[relation].norm()
    return vectors[neighbor] - (normal @ vectors[neighbor]) * normal


def mean_loop(encoder: NeighborEncoder, vectors: Tensor, around: list[Edge], query: int) -> Tensor:
    total = torch.zeros_like(vectors[0])
    for relation, neighbor, weight in around:
        total = total + weight * transformed(encoder, vectors, relation, neighbor)
    return total / sum(weight for _, _, weight in around) if around else total


def lan_loop(encoder: LANEncoder, vectors: Tensor, around: list[Edge], query: int) -> Tensor:
    if not around:
        return torch.zeros_like(vectors[0])
    neural, logic, messages = [], [], []
    for relation, neighbor, weight in around:
        message = transformed(encoder, vectors, relation, neighbor)
        key = torch.cat([encoder.queries[query], message]) @ encoder.attention_map
        neural.append(weight * math.exp(encoder.attention_vector.detach() @ torch.tanh(key.detach())))
        others = [float(encoder.implied[other, relation]) for other, _, _ in around if other != relation]
        logic.append(weight * float(encoder.implied[relation, query]) / max([0.1, *others]))
        messages.append(message)
    total = torch.zeros_like(vectors[0])
    for attention in (neural, logic):
        for part, message in zip(attention, messages, strict=True):
            total = total + part / (sum(attention) or 1.0) * message
    return total


def lstm_loop(encoder: LSTMEncoder, vectors: Tensor, around: list[Edge], query: int) -> Tensor:
    cell, memory, output = encoder.cell, torch.zeros_like(vectors[0]), torch.zeros_like(vectors[0])
    size = 2 * encoder.num_relations
    order = {(r, n): int(scrambled(n * size + r + encoder.shuffle)) for r, n, _ in around}
    for relation, neighbor, weight in sorted(around, key=lambda edge: order[edge[:2]]):
        message = weight * transformed(encoder, vectors, relation, neighbor)
        gates = cell.weight_ih_l0 @ message + cell.bias_ih_l0 + cell.weight_hh_l0 @ output + cell.bias_hh_l0
        enter, forget, new, leave = gates.chunk(4)
        memory = torch.sigmoid(forget) * memory + torch.sigmoid(enter) * torch.tanh(new)
        output = torch.sigmoid(leave) * torch.tanh(memory)
    return output


def unlikeliness(
    encoder: FoldInEncoder, decoder: Decoder, vectors: Tensor, around: list[Edge], vector: Tensor
) -> Tensor:
    """What fold-in minimises, fact by fact from the formula; ``vectors`` are those that the facts name."""
    weighted = zip(encoder.negatives, encoder.log_weights, strict=True)
    candidates = [(encoder.vectors[entity], float(weight)) for entity, weight in weighted]
    candidates += [(vectors[e], 0.0) for e in sorted({neighbor for _, neighbor, _ in around})]
    total = RIDGE * vector.square().sum()
    for relation, neighbor, weight in around:

        def score(tail: Tensor, asked: int = relation) -> Tensor:
            return decoder.triples(vector[None], torch.tensor([asked]), tail[None])[0]

        total = total - weight * score(vectors[neighbor])
        total = total + weight * torch.stack([score(tail) + log for tail, log in candidates]).logsumexp(0)
    return total


def most_likely(encoder: FoldInEncoder, decoder: Decoder, vectors: Tensor, around: list[Edge]) -> Tensor:
    """The minimum of that by a solver of torch's own."""
    vector = torch.zeros(vectors.shape[1], dtype=torch.float64, requires_grad=True)
    exact = {"tolerance_grad": 1e-9, "tolerance_change": 1e-16, "line_search_fn": "strong_wolfe"}
    solver = torch.optim.LBFGS([vector], max_iter=500, **exact)

    def closure() -> Tensor:
        solver.zero_grad()
        cost = unlikeliness(encoder, decoder, vectors, around, vector)
        (vector.grad,) = torch.autograd.grad(cost, vector)
        return cost

    solver.step(closure)
    return vector.detach()


# Fold-in asks for scores that are linear in a vector.
ENCODER_DECODERS = [(e, d) for e in ENCODERS for d in DECODERS if (e, d) != ("foldin", "transe")]
LOOPS = {"mean": mean_loop, "lan": lan_loop, "lstm": lstm_loop}
