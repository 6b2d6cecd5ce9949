"""What a store answers where it cannot do as asked: kinds of `StoreError`, for whoever answers over a network."""

from newcomer.errors import StoreError


class KeyReusedError(StoreError):
    """An idempotency key that stands for another request already."""


class NotThereError(StoreError):
    """Facts, newcomers or answers that the store does not have."""


class StoreBusyError(StoreError):
    """Others wrote for longer than one waits; the same request may be sent again."""


class NewerStoreError(StoreError):
    """A store that a newer version of this package has written."""
