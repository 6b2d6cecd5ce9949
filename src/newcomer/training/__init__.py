"""Training the VN network and its baselines: Algorithm 1 of the paper, on a CPU or a GPU."""
