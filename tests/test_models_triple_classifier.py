"""The judge as a network: what it makes of numbers as large as those it was measured by, and of others."""

import torch

from newcomer.models.triple_classifier import FURTHEST, MEMBERS, Judge


def judge() -> Judge:
    torch.manual_seed(0)
    return Judge(num_relations=3, width=4).eval()


def test_the_scale_of_the_numbers_does_not_matter():
    numbers, relations = torch.randn(50, 4), torch.randint(3, (50,))
    plain, scaled = judge(), judge()
    plain.measure(numbers)
    scaled.measure(1000 * numbers + 5)
    torch.testing.assert_close(plain(numbers, relations), scaled(1000 * numbers + 5, relations), rtol=0.05, atol=0.02)


def test_beyond_what_was_practised_nothing_grows():
    one = judge()
    one.measure(torch.randn(50, 4))
    far, farther = (one.mean + factor * FURTHEST * one.scale for factor in (2, 200))
    assert torch.equal(one(far[None], torch.tensor([1])), one(farther[None], torch.tensor([1])))


def test_a_number_that_never_differs_is_no_trouble():
    one = judge()
    one.measure(torch.ones(10, 4))
    assert torch.isfinite(one(torch.ones(2, 4), torch.tensor([0, 1]))).all()


def test_relations_are_told_apart():
    with torch.no_grad():
        odds = judge()(torch.randn(1, 4).expand(3, 4), torch.arange(3))
    assert len(set(odds.tolist())) == 3


def test_the_members_differ_and_their_mean_decides():
    numbers, relations = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    with torch.no_grad():
        each = judge().each(numbers, relations)
        torch.testing.assert_close(judge()(numbers, relations), each.mean(dim=0))
    assert each.shape == (MEMBERS, 5) and not torch.allclose(each[0], each[1])
