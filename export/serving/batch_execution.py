"""Computing requests together: those of equal shapes along one axis, each answered as if alone."""

import numpy as np

from keras_transformer.export.errors import RunError


def run_batched(model, asks, max_batch_size):
    """Computes requests with as few calls as can be.

    Requests go together where everything but the number of their examples is equal, and every input and output has the axis
    `batch` in front. Where a call fails, its requests are computed one by one, so that one does not spoil the others.

    Args:
        model: `RuntimeModel`.
        asks: list of dicts of input name to checked array.
        max_batch_size: int >= 1: the most examples of a call; a request with more is a call of its own.

    Returns:
        List of dicts of output name to array, or of the `RunError` where there is none, in the order of the requests; and
        the list of the sizes of the calls in examples.
    """
    joined = all(spec.axes[:1] == ("batch",) for spec in (*model.inputs, *model.outputs))
    answers, sizes = [None] * len(asks), []
    for group in _groups(asks, max_batch_size) if joined else [[index] for index in range(len(asks))]:
        results = _run(model, [asks[index] for index in group])
        sizes.append(sum(_examples(asks[index]) for index in group) if joined else 1)
        for index, result in zip(group, results, strict=True):
            answers[index] = result
    return answers, sizes


def _groups(asks, max_batch_size):
    """Lists of places in `asks`."""
    groups, open_groups = [], {}
    for index, arrays in enumerate(asks):
        key = tuple((name, array.dtype.str, array.shape[1:]) for name, array in sorted(arrays.items()))
        count, group = open_groups.get(key, (max_batch_size, None))
        if count + _examples(arrays) > max_batch_size:
            count, group = 0, []
            groups.append(group)
        group.append(index)
        open_groups[key] = count + _examples(arrays), group
    return groups


def _examples(arrays):
    return len(next(iter(arrays.values())))


def _run(model, asks):
    if len(asks) == 1:
        return [_alone(model, asks[0])]
    try:
        outputs = model({name: np.concatenate([arrays[name] for arrays in asks]) for name in asks[0]})
    except RunError:
        return [_alone(model, arrays) for arrays in asks]
    ends = np.cumsum([_examples(arrays) for arrays in asks])[:-1]
    pieces = {name: np.split(array, ends) for name, array in outputs.items()}
    return [{name: pieces[name][index] for name in outputs} for index in range(len(asks))]


def _alone(model, arrays):
    try:
        return model(arrays)
    except RunError as error:
        return error
