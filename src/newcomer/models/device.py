"""The device a model computes on."""

import torch

from newcomer.errors import OptionError, unknown_name

DEVICES = ("auto", "cpu", "cuda")


def choose_device(name: str) -> torch.device:
    """The device of this name: ``auto`` takes a GPU where there is one."""
    if name not in DEVICES:
        raise unknown_name("device", name, DEVICES)
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise OptionError("there is no GPU that PyTorch can use here; pass --device cpu or auto")
    return torch.device("cuda" if there and name != "cpu" else "cpu")
