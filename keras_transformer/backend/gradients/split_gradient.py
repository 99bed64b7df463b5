"""A function and its gradient as two functions of TensorFlow, of which the first returns only what the second needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from keras_transformer.backend.gradients.joint_graph import JointGraph
from keras_transformer.utils.types import Outputs, Tensor

if TYPE_CHECKING:
    import tensorflow as tf


class SplitGradient:
    """A function with its gradient, each traced once: neither is inlined, however often it is called.

    TensorFlow does the same for a `tf.function` in another, but keeps for the gradient whatever it might need: factors of
    constants, reshaped weights, and what is computed in no time from another tensor that is kept.

    Args:
        function: function of tensors to a list of tensors, traced by TensorFlow.
        specs: `tf.TensorSpec` of each argument.
        trained: indices of the arguments that get gradients.
        name: str. Name of the functions in the graph.
        inlined: bool. Whether calls add the operations to the graph, to be counted. Default False.

    Attributes:
        has_captures: bool. Whether the function reads other tensors than its arguments: it cannot be called then.
    """

    def __init__(
        self,
        function: Callable[..., Sequence[tf.Tensor]],
        specs: Sequence[tf.TensorSpec],
        trained: Sequence[int],
        name: str,
        inlined: bool = False,
    ) -> None:
        joint = JointGraph(function, specs, trained)
        self.has_captures = joint.has_captures
        if self.has_captures:
            return
        self._is_float, self._num_results, self._num_arguments = joint.is_float, len(joint.results), len(specs)
        kept = joint.kept()
        made = [each for each in kept if each not in joint.arguments]
        needed = [each for each in kept if each in joint.arguments]
        self._needed = [joint.arguments.index(each) for each in needed]
        self._trained = [index for index, each in zip(trained, joint.gradients, strict=True) if each is not None]
        gradients = [each for each in joint.gradients if each is not None]
        self._forward = joint.function(f"{name}_forward", joint.arguments, [*joint.results, *made], inlined)
        self._backward = joint.function(f"{name}_backward", [*made, *needed, *joint.upstream], gradients, inlined)

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Returns the results of the function."""
        import tensorflow as tf

        @tf.custom_gradient
        def call(*arguments: Tensor) -> Outputs:
            outputs = self._forward(*arguments)
            results, made = outputs[: self._num_results], outputs[self._num_results :]

            def backward(*upstream: Tensor) -> list[Tensor | None]:
                floats = [each for each, is_float in zip(upstream, self._is_float, strict=True) if is_float]
                gradients = self._backward(*made, *(arguments[index] for index in self._needed), *floats)
                found = dict(zip(self._trained, gradients, strict=True))
                return [found.get(index) for index in range(self._num_arguments)]

            return results, backward

        return call(*tensors)
