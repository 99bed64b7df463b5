"""What users want: each function does it in one format, or is refused and then applies the remedy of the error."""

from situations import checkpoints, interfaces, numbers, randomness, runtimes, sizes

TOPICS = {
    "checkpoints": checkpoints,
    "interfaces": interfaces,
    "numbers": numbers,
    "randomness and state": randomness,
    "runtimes": runtimes,
    "sizes": sizes,
}
SITUATIONS = {each.__name__: each for module in TOPICS.values() for each in module.SITUATIONS}
