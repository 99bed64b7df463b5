"""The converter's own optimizer, but for what it gets wrong."""

import contextlib
import threading

_LOCK = threading.Lock()
_RESHAPE = ("Reshape",)


def optimize_graph(graph):
    """tf2onnx's graph, simplified by tf2onnx.

    Of two reshapes in a row tf2onnx removes the first. A 0 in the target of the second stands for a size of what comes in,
    which then is another: multi-query attention, whose only head it moves by such a reshape, could not be computed.

    Where it moves a transposition behind the square of a tensor, it leaves the square the shape that it had. By that shape
    it then makes a reshape of the transposition, to a wrong shape: a norm behind a convolution of one place was taken over
    the places.
    """
    import tf2onnx.optimizer

    with _LOCK, _sound_reshapes(), _sound_squares():
        return tf2onnx.optimizer.optimize_graph(graph)


@contextlib.contextmanager
def _sound_reshapes():
    from tf2onnx.optimizer.back_to_back_optimizer import _func_map

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


@contextlib.contextmanager
def _sound_squares():
    from tf2onnx.optimizer.transpose_optimizer import TransposeOptimizer, invert_perm

    move = TransposeOptimizer._mul_handler

    def moved(self, transposition, product):
        shape, is_square = self._g.get_shape(product.output[0]), product.input[0] == product.input[1]
        done = move(self, transposition, product)
        if done and is_square and shape:
            order = invert_perm(transposition.get_attr_value("perm"))
            self._g.set_shape(product.output[0], [shape[axis] for axis in order])
        return done

    TransposeOptimizer._mul_handler = moved
    try:
        yield
    finally:
        TransposeOptimizer._mul_handler = move
