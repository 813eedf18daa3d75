"""What benchmarks/peers.py compares ours with: a file for each package, and a new one is found by itself.

Each holds functions as a user would write them and `PEERS`, a tuple of what they are (benchmarks/peer.py). They import
nothing heavy but inside the functions: each is timed in a process of its own.
"""

import importlib
import pkgutil

from peer import Peer


def found() -> dict[str, Peer]:
    """All of them by their name, package by package."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    peers: list[Peer] = [peer for module in modules for peer in module.PEERS]
    by_name = {peer.name: peer for peer in peers}
    if len(by_name) < len(peers):
        raise ValueError(f"two peers have the same name: {[peer.name for peer in peers]}")
    return by_name
