"""One seed in params.yaml, and from it a seed of its own for everything random, whoever runs it and in which order."""

import hashlib


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for a purpose: derive(0, "finetune", 3) never equals derive(0, "splits")."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
