"""Soft labels of virtual triples: how far the rules that infer a triple and the current embeddings bear it out.

Rules are read in product t-norm fuzzy logic (the paper's "Soft Label Prediction"). The labels s solve

    min  1/2 sum over triples x of (s(x) - I(x))^2  +  C sum over groundings f of xi_f
    s.t. lambda_f (1 - pi(f | s)) <= xi_f,   xi_f >= 0,   0 <= s(x) <= 1

where I(x) is the truth of x under the current embeddings, lambda_f the confidence of the rule of f, and pi(f | s) the
truth of "the premises of f imply x" with s(x) as the truth of x: 1 - p_f (1 - s(x)), p_f the product of the premises'
truths. That is linear in s(x) and never above 1, so the problem is solved triple by triple and at once:

    s(x) = clip01( I(x) + C * sum over groundings f of x of lambda_f * p_f )
"""

import math

import torch
from torch import Tensor

from newcomer.errors import OptionError, shown, unknown_name
from newcomer.models.sparse import Rows, row_sums

MODES = ("soft", "hard", "none")


def conjunction(first: Tensor, second: Tensor) -> Tensor:
    """Truth of "first and second": the product."""
    return first * second


def disjunction(first: Tensor, second: Tensor) -> Tensor:
    """Truth of "first or second": a + b - a b."""
    return first + second - first * second


def negation(truth: Tensor) -> Tensor:
    """Truth of "not"."""
    return 1 - truth


def implication(premise: Tensor, conclusion: Tensor) -> Tensor:
    """Truth of "premise implies conclusion", that is "not premise, or conclusion": 1 - a (1 - b)."""
    return negation(premise * negation(conclusion))


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

    ``truth`` (n,) is what the embeddings say of the triples, ``support`` (n,) what their groundings say.

    Modes: ``soft`` is the formula above; ``hard`` believes every rule, label 1; ``none`` uses no virtual triples, label
    and so weight 0.
    """
    if mode not in MODES:
        raise unknown_name("label mode", mode, MODES)
    if not (math.isfinite(c) and c >= 0):
        raise OptionError(f"c={shown(c)}: the weight of the rules must be a finite number from 0 on")
    if mode == "none":
        return torch.zeros_like(truth)
    if mode == "hard":
        return torch.ones_like(truth)
    return (truth + c * support).clamp(0.0, 1.0)
