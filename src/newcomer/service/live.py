"""The model that a service answers with, and how another one takes its place while requests are answered."""

import gc
import threading
from pathlib import Path

from newcomer.predictor import Predictor, load
from newcomer.service.stored_predictor import StoredPredictor, model_version
from newcomer.store.store import Store


class Live:
    """A model over a store. Whoever has taken ``current`` goes on with it, whatever takes its place."""

    def __init__(self, run: Path, store: Store, device: str = "cpu") -> None:
        self._run, self._store, self._device = run, store, device
        self._loading = threading.Lock()
        self.current = self._load()
        _set_aside()

    @property
    def store(self) -> Store:
        """The store of newcomers."""
        return self._store

    def reload(self) -> bool:
        """Load the model's folder anew, if it has another model by now, and answer with that; whether it had.

        Where it cannot be read that is the error, and the model stays as it is.
        """
        with self._loading:
            if model_version(self._run) == self.current.version:
                return False
            gc.unfreeze()
            self.current = self._load()
            _set_aside()
            return True

    def _load(self) -> StoredPredictor:
        version = ""
        while version != model_version(self._run):  # the folder may be replaced while it is read
            version = model_version(self._run)
            model = load(self._run, self._device, threads=1)
        _warm(model)
        return StoredPredictor(model, self._store, version)


def _warm(model: Predictor) -> None:
    """Ask once, so that whoever asks first does not wait for what is worked out at the first question."""
    if len(model.names.entities) and len(model.names.relations):
        model.suggest(model.names.entity_names[0], 1)


def _set_aside() -> None:
    """What belongs to the model stays: it need not be searched for garbage again and again."""
    gc.collect()
    gc.freeze()
