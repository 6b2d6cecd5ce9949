"""A trained model over a durable store (extra ``store``), and an HTTP service of it (extra ``serve``)."""
