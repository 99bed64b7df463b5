"""The converter's own optimiser, but for what it gets wrong."""

import contextlib
import threading

_LOCK = threading.Lock()
_RESHAPE = ("Reshape",)


def optimize_graph(graph):
    """tf2onnx's graph, simplified by tf2onnx.

    Of two reshapes in a row tf2onnx removes the first. A 0 in the target of the second stands for a size of what comes in,
    which then is another: multi-query attention, whose only head it moves by such a reshape, could not be computed.
    """
    import tf2onnx.optimizer

    with _sound_reshapes():
        return tf2onnx.optimizer.optimize_graph(graph)


@contextlib.contextmanager
def _sound_reshapes():
    from tf2onnx.optimizer.back_to_back_optimizer import _func_map

    with _LOCK:
        merge = _func_map[_RESHAPE]
        _func_map[_RESHAPE] = lambda graph, node, consumers: (
            [] if any(_copies_sizes(each) for each in consumers) else merge(graph, node, consumers)
        )
        try:
            yield
        finally:
            _func_map[_RESHAPE] = merge


def _copies_sizes(reshape):
    target = reshape.inputs[1]
    return target.is_const() and 0 in target.get_tensor_value(as_list=False)
