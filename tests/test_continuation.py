"""A final fit that goes on from the search's vectors: whose they are, and what it ends with."""

import math

import numpy as np
import pytest
import torch

from newcomer.graph import Vocabulary
from newcomer.models.device import choose_device
from newcomer.models.embedding.graph_tensors import build_graph_tensors
from newcomer.models.engine import InferenceEngine, StoredNewcomers
from newcomer.training.checkpoint import Figures, RunState
from newcomer.training.continuation import Table, continues, final_epochs, go_on_from
from newcomer.training.embedding import Trainer
from newcomer.training.pipeline import Fitted, Listener, fit
from nn_oracle import one_thread
from training_world import FOLDED, StopAfter, Stopped, settings, weights, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET = world()
GOING_ON = (*FOLDED, "training.optimiser=adagrad", "training.lr=0.1", "training.patience=9")


def searched(*changes: str) -> Fitted:
    """What a search ends with."""
    found = fit(DATASET, settings(*GOING_ON, "training.final_fit=no", *changes), device="cpu")
    assert found.vectors is not None
    return found


def fresh(*changes: str) -> Trainer:
    """A trainer of everyone that has learned nothing."""
    seen = int(DATASET.is_seen.sum())
    graph = build_graph_tensors(DATASET.observed, seen, None, torch.device("cpu"))
    return Trainer(settings(*GOING_ON, *changes), graph, choose_device("cpu"))


def test_vectors_go_to_the_same_names_and_the_rest_stays():
    table = Table(
        Vocabulary(["a", "b", "c"]),
        torch.tensor([True, False, True]),
        torch.tensor([[1.0], [2.0], [3.0]]),
        torch.tensor([[0.1], [0.2], [0.3]]),
    )
    vectors, squares = torch.full((4, 1), 9.0), torch.full((4, 1), 0.9)
    table.carried_to(Vocabulary(["c", "x", "a", "b", "newcomer"]), vectors, squares)
    assert vectors[:, 0].tolist() == [3.0, 9.0, 1.0, 9.0]
    assert squares[:, 0].tolist() == pytest.approx([0.3, 0.9, 0.1, 0.9])


@pytest.mark.parametrize(
    ("share", "found", "epochs"), [(0.25, 1, 1), (0.25, 4, 1), (0.25, 5, 2), (0.25, 16, 4), (1, 7, 7)]
)
def test_a_share_of_the_epochs_is_enough_and_one_is_the_least(share, found, epochs):
    assert final_epochs(settings(*GOING_ON, f"training.final_share={share}"), found) == epochs


def test_only_vectors_that_are_looked_up_are_gone_on_from():
    assert continues(settings(*GOING_ON)) and not continues(settings(*GOING_ON, "training.final_share=1"))
    assert not continues(settings()) and not continues(settings(*FOLDED, "training.optimiser=adam"))
    assert final_epochs(settings(), 16) == 16
    assert fit(DATASET, settings("training.final_fit=no", "training.epochs=1")).vectors is None


def test_a_search_ends_with_the_vectors_of_all_it_knows():
    found = searched()
    assert found.vectors is not None
    dataset, (entities, relations) = found.dataset, found.vectors
    trained = found.model.embedding.state_dict()
    seen = len(trained["encoder.vectors"])
    assert list(entities.names) == list(dataset.entities) and list(relations.names) == list(dataset.relations)
    assert torch.equal(entities.vectors[:seen], trained["encoder.vectors"])
    assert entities.known[:seen].all() and relations.known.all()
    assert len(dataset.newcomers) > 0 and entities.known[dataset.newcomers.astype(np.int64)].all()


def test_those_held_out_start_from_what_their_facts_were_folded_into():
    found = searched()
    assert found.vectors is not None
    engine = InferenceEngine(found.model, StoredNewcomers(found.dataset.auxiliary.triples))
    entities = found.vectors.entities
    for newcomer in found.dataset.newcomers.tolist():
        (place,) = [(m, i) for m in engine.initial.members for i in np.flatnonzero(m.ids == newcomer)]
        members, row = place
        folded = members.encoded.states.layers[0][len(members.encoded.near) + row]
        assert folded.abs().sum() > 0 and torch.equal(entities.vectors[newcomer], folded)
    seen = int(found.dataset.is_seen.sum())
    mean = entities.squares[:seen].mean(dim=0)
    for newcomer in found.dataset.newcomers.tolist():
        assert torch.allclose(entities.squares[newcomer], mean)


def test_a_fresh_trainer_goes_on_with_vectors_and_sums_by_name():
    found = searched()
    learned = found.vectors
    assert learned is not None
    known = learned.entities.known.clone()
    lost = int(found.dataset.newcomers[0])
    known[lost] = False  # of this one nothing was learned
    learned = learned._replace(entities=learned.entities._replace(known=known))
    trainer, untouched = fresh(), fresh()
    go_on_from(learned, trainer, DATASET)
    own, before = trainer.model.encoder.vectors, untouched.model.encoder.vectors
    for place, name in enumerate(list(DATASET.entities)[: len(own)]):
        source = learned.entities.names.id(name)
        if source == lost:
            assert torch.equal(own[place], before[place])
            continue
        assert torch.equal(own[place], learned.entities.vectors[source])
        assert torch.equal(trainer.optimiser.state[own]["sum"][place], learned.entities.squares[source])
    relations = trainer.model.decoder.vectors
    order = [learned.relations.names.id(name) for name in DATASET.relations]
    assert torch.equal(relations[: len(order)], learned.relations.vectors[order])


def test_the_final_fit_is_a_trainer_that_goes_on_from_the_search():
    changes = ("training.epochs=4", "training.validate_every=4", "training.final_share=0.5")
    whole, search = fit(DATASET, settings(*GOING_ON, *changes), device="cpu"), searched(*changes)
    assert search.vectors is not None
    assert [(one["phase"], one["epoch"]) for one in whole.history][4:] == [("final", 1), ("final", 2)]
    trainer = Trainer(settings(*GOING_ON, *changes), whole.model.graph, choose_device("cpu"))
    go_on_from(search.vectors, trainer, DATASET)
    for number in range(2):
        trainer.epoch(number)
    found, wanted = whole.model.embedding.state_dict(), trainer.model.state_dict()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


class BeforeItsEpochs(Listener):
    """Ends everything when the final fit has begun and no epoch of it is done."""

    def stage(self, what: str) -> None:
        if what == "final":
            raise Stopped

    def epoch(self, record: Figures, state: RunState, last: int) -> None:
        assert record["phase"] == "search"


def test_a_final_fit_that_is_resumed_ends_with_the_same_bytes(tmp_path):
    changes = settings(*GOING_ON, "training.epochs=4", "training.validate_every=1", "training.final_share=0.9")
    whole = fit(DATASET, changes, device="cpu")
    final = math.ceil(0.9 * whole.metrics["validation"]["epoch"])
    assert [one["phase"] for one in whole.history].count("final") == final
    stops = [BeforeItsEpochs(), *(StopAfter(4 + number) for number in range(1, final))]
    for number, stop in enumerate(stops):
        with pytest.raises(Stopped):
            fit(DATASET, changes, device="cpu", folder=tmp_path / str(number), report=stop)
        resumed = fit(DATASET, changes, device="cpu", folder=tmp_path / str(number), resume=True)
        assert weights(resumed) == weights(whole) and len(resumed.history) == len(whole.history)


def test_the_same_seed_goes_on_to_the_same_vectors_and_other_ones_than_anew():
    once, twice = (fit(DATASET, settings(*GOING_ON), device="cpu") for _ in range(2))
    anew = fit(DATASET, settings(*GOING_ON, "training.final_share=1"), device="cpu")
    assert weights(once) == weights(twice) != weights(anew)
