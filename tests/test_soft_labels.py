import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from newcomer.models.embedding.graph_tensors import grounding_support, soft_labels
from nn_oracle import rows_of

MODES = "soft", "hard", "none"


def labels_of(truth: Tensor, rows: Tensor, confidence: Tensor, premises: Tensor, **options) -> Tensor:
    counts = torch.bincount(rows, minlength=len(truth)).tolist()
    groundings = rows_of([[0] * count for count in counts], 1)
    return soft_labels(truth, grounding_support(groundings, confidence, premises), **options)


def labels(truth, rows, confidence, premises, **options) -> Tensor:
    """Soft labels from lists, in double precision."""
    numbers = [torch.tensor(x, dtype=torch.float64) for x in (truth, confidence, premises)]
    return labels_of(
        numbers[0], torch.tensor(rows, dtype=torch.int64), numbers[1], numbers[2].reshape(-1, 3), **options
    )


def test_labels_by_hand():
    found = labels(
        truth=[0.30, 0.60, 0.99],
        rows=[0, 0, 2],
        confidence=[0.9, 0.8, 1.0],
        premises=[[0.5, 1.0, 1.0], [0.5, 0.5, 1.0], [1.0, 0.9, 0.5]],
        c=0.1,
    )
    # 0.30 + 0.1 (0.9 * 0.5 + 0.8 * 0.25); no grounding; 0.99 + 0.1 * 0.45, cut at 1
    assert found.tolist() == pytest.approx([0.365, 0.60, 1.0])


def test_c_is_a_hundredth_unless_said():
    assert labels([0.5], [0], [0.8], [[0.5, 0.5, 1.0]]).tolist() == pytest.approx([0.5 + 0.01 * 0.8 * 0.25])


def random_case(seed: int):
    """Truths, rows, confidences and premise truths of a few triples; C from far too small to clip to far too large."""
    generator = np.random.default_rng(seed)
    triples, groundings = int(generator.integers(1, 6)), int(generator.integers(0, 12))
    rows = np.sort(generator.integers(triples, size=groundings))
    premises = generator.random((groundings, 3))
    premises[generator.random((groundings, 3)) < 0.4] = 1.0
    return (
        generator.random(triples),
        rows,
        generator.random(groundings),
        premises,
        float(10 ** generator.uniform(-2.5, 0.5)),
    )


def objective(s, triple, truth, rows, confidence, premises, c):
    """The stated problem's share of one triple at labels ``s`` (k,); each slack is the least its constraints allow."""
    value = 0.5 * (s - truth[triple]) ** 2
    for f in np.flatnonzero(rows == triple):
        body = float(np.prod(premises[f]))
        rule = body * s - body + 1.0
        value = value + c * np.maximum(0.0, confidence[f] * (1.0 - rule))
    return value


def solved(truth, rows, confidence, premises, c):
    """Labels that minimise the objective, found by scans that close in on the best point; nothing is derived."""
    found = np.empty(len(truth))
    for triple in range(len(truth)):
        low, high = 0.0, 1.0
        for _ in range(12):
            points = np.linspace(low, high, 101)
            best = points[objective(points, triple, truth, rows, confidence, premises, c).argmin()]
            step = (high - low) / 100
            low, high = max(0.0, best - 2 * step), min(1.0, best + 2 * step)
        found[triple] = best
    return found


@pytest.mark.parametrize("seed", range(40))
def test_labels_solve_the_convex_problem(seed):
    case = random_case(seed)
    found = labels(*case[:4], c=case[4]).numpy()
    np.testing.assert_allclose(found, solved(*case), rtol=0, atol=1e-6)


def test_the_cases_reach_the_clip_and_stay_below_it():
    found = np.concatenate([labels(*case[:4], c=case[4]).numpy() for case in map(random_case, range(40))])
    assert (found == 1.0).sum() >= 5
    assert (found < 1.0).sum() >= 20


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_no_other_labels_are_better(seed, other):
    case = random_case(seed)
    found, other_labels = labels(*case[:4], c=case[4]).numpy(), np.random.default_rng(other).random(len(case[0]))
    ours, theirs = (sum(objective(s[i : i + 1], i, *case)[0] for i in range(len(s))) for s in (found, other_labels))
    assert ours <= theirs + 1e-12


@given(st.integers(0, 10_000))
def test_rules_only_raise_a_label_and_more_so_with_c(seed):
    truth, rows, confidence, premises, c = random_case(seed)
    low, high = (labels(truth, rows, confidence, premises, c=weight) for weight in (c, 2 * c))
    assert bool((torch.from_numpy(truth) <= low).all() and (low <= high).all() and (high <= 1).all())
    assert torch.equal(labels(truth, rows, confidence, premises, c=0.0), torch.from_numpy(truth))


def test_modes():
    case = random_case(3)[:4]
    assert labels(*case, mode="soft").equal(labels(*case))
    assert labels(*case, mode="hard").equal(torch.ones(len(case[0]), dtype=torch.float64))
    assert labels(*case, mode="none").equal(torch.zeros(len(case[0]), dtype=torch.float64))
    assert MODES == ("soft", "hard", "none")


@pytest.mark.parametrize("mode", MODES)
def test_no_gradient_flows_through_a_label(mode):
    truth, confidence, premises = (torch.rand(*s, requires_grad=True) for s in ((2,), (3,), (3, 3)))
    found = labels_of(truth, torch.tensor([0, 1, 1]), confidence, premises, mode=mode)
    assert not found.requires_grad
    (truth * found).sum().backward()
    assert truth.grad is not None and torch.equal(truth.grad, found)
    assert confidence.grad is None and premises.grad is None


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_label(mode):
    assert labels([], [], [], [], mode=mode).shape == (0,)


def test_without_groundings_the_label_is_the_truth():
    assert labels([0.2, 0.7], [], [], []).tolist() == [0.2, 0.7]


@pytest.mark.parametrize("row_type", [torch.int32, torch.int64])
def test_the_label_has_the_type_of_the_truth(row_type):
    truth, rows = torch.tensor([0.5, 0.25]), torch.tensor([1, 1], dtype=row_type)
    confidence = torch.tensor([1.0, 1.0], dtype=torch.float64)
    found = labels_of(truth, rows, confidence, torch.ones(2, 3), c=0.125)
    assert found.dtype == torch.float32
    assert found.tolist() == [0.5, 0.5]


def test_a_label_does_not_depend_on_its_batch_nor_on_the_run():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(500, (20_000,), generator=generator).sort().values
    truth, confidence, premises = (torch.rand(*s, generator=generator) for s in ((500,), (20_000,), (20_000, 3)))
    whole = labels_of(truth, rows, confidence, premises)
    assert labels_of(truth, rows, confidence, premises).equal(whole)
    for row in (0, 123, 499):
        own = rows == row
        alone = labels_of(truth[row : row + 1], rows[own] - row, confidence[own], premises[own])
        assert alone.equal(whole[row : row + 1])
