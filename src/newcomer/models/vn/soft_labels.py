"""Soft labels of virtual triples: how far the rules that infer a triple and the current embeddings support it.

Rules are read in product t-norm fuzzy logic (the paper's "Soft Label Prediction"). The labels s solve

    min  1/2 sum over triples x of (s(x) - I(x))^2  +  C sum over groundings f of xi_f
    s.t. lambda_f (1 - pi(f | s)) <= xi_f,   xi_f >= 0,   0 <= s(x) <= 1

where I(x) is the truth of x under the current embeddings, lambda_f the confidence of the rule of f, and pi(f | s) the
truth of "the premises of f imply x" with s(x) as the truth of x. "a and b" is a b, "not a" is 1 - a, and "a implies b"
is "not (a and not b)"; so pi(f | s) = 1 - p_f (1 - s(x)) with p_f, the product of the premises' truths. That is linear
in s(x) and never above 1, so the problem is solved triple by triple and at once:

    s(x) = clip01( I(x) + C * sum over groundings f of x of lambda_f * p_f )
"""

import torch
from torch import Tensor

from newcomer.models.sparse import Rows, row_sums


@torch.no_grad()
def grounding_support(groundings: Rows, confidence: Tensor, premise_truth: Tensor) -> Tensor:
    """(rows,): for each virtual triple (a row) the sum over its groundings f (the row's entries) of lambda_f * p_f.

    Each of g groundings has the confidence of its rule (g,) and its premises' truths (g, p), 1.0 where it has fewer
    than p premises.
    """
    return row_sums(groundings, (confidence * premise_truth.prod(dim=-1)).to(premise_truth.dtype))


@torch.no_grad()
def soft_labels(truth: Tensor, support: Tensor, c: float = 0.01, mode: str = "soft") -> Tensor:
    """Labels (n,) of n virtual triples; no gradient flows through a label.

    ``truth`` (n,) is that of the triples under the embeddings, ``support`` (n,) that of their groundings.

    Modes: ``soft`` is the formula above; ``hard`` trusts every rule, label 1; ``none`` uses no virtual triples, label
    and so weight 0.
    """
    if mode == "none":
        return torch.zeros_like(truth)
    if mode == "hard":
        return torch.ones_like(truth)
    return (truth + c * support).clamp(0.0, 1.0)
