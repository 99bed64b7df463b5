"""Metadata that the worker exports, and that tests expect."""

METADATA = {
    "description": "Two outputs für Tests",
    "class_names": ["cat", "dog", "ü"],
    "inputs": {"token_ids": {"description": "ids of tokens", "range": [0, 49], "mean": 0.5, "std": [2, 4.5]}},
    "anything": {"else": [1, None]},
}
