"""The triple classifier as a network: features as large as those it was standardised by, and others."""

import torch

from newcomer.models.triple_classifier import FURTHEST, MEMBERS, TripleClassifier


def classifier() -> TripleClassifier:
    torch.manual_seed(0)
    return TripleClassifier(num_relations=3, width=4).eval()


def test_the_scale_of_the_numbers_does_not_matter():
    numbers, relations = torch.randn(50, 4), torch.randint(3, (50,))
    plain, scaled = classifier(), classifier()
    plain.standardise_by(numbers)
    scaled.standardise_by(1000 * numbers + 5)
    torch.testing.assert_close(plain(numbers, relations), scaled(1000 * numbers + 5, relations), rtol=0.05, atol=0.02)


def test_features_far_beyond_those_trained_on_are_clipped():
    one = classifier()
    one.standardise_by(torch.randn(50, 4))
    far, farther = (one.mean + factor * FURTHEST * one.scale for factor in (2, 200))
    assert torch.equal(one(far[None], torch.tensor([1])), one(farther[None], torch.tensor([1])))


def test_a_number_that_never_differs_is_no_trouble():
    one = classifier()
    one.standardise_by(torch.ones(10, 4))
    assert torch.isfinite(one(torch.ones(2, 4), torch.tensor([0, 1]))).all()


def test_relations_are_told_apart():
    with torch.no_grad():
        odds = classifier()(torch.randn(1, 4).expand(3, 4), torch.arange(3))
    assert len(set(odds.tolist())) == 3


def test_the_members_differ_and_their_mean_decides():
    numbers, relations = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    with torch.no_grad():
        each = classifier().by_member(numbers, relations)
        torch.testing.assert_close(classifier()(numbers, relations), each.mean(dim=0))
    assert each.shape == (MEMBERS, 5) and not torch.allclose(each[0], each[1])
