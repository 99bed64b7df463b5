"""Small models of other fields, as users of Keras write them.

Each function builds a model, trains it for a few steps and returns it with inputs: an array, or a list or dict of arrays, as
the model takes them.
"""

from example_models import (
    audio,
    detection,
    generative,
    graphs,
    images,
    points,
    recommendation,
    reinforcement_learning,
    structured_data,
    text_in_images,
    time_series,
    video,
)

FIELDS = {
    "audio": audio,
    "detection": detection,
    "generative models": generative,
    "graphs": graphs,
    "images": images,
    "points and rays": points,
    "recommendation": recommendation,
    "reinforcement learning": reinforcement_learning,
    "structured data": structured_data,
    "text in images, words": text_in_images,
    "time series": time_series,
    "video": video,
}
EXAMPLES = {each.__name__: each for module in FIELDS.values() for each in module.EXAMPLES}
FIELD = {each.__name__: field for field, module in FIELDS.items() for each in module.EXAMPLES}
