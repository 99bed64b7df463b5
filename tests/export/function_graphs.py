"""What a function computes after a rewrite of its TensorFlow graph."""

import tensorflow as tf


def rewritten(function, rewrite, *arrays):
    """What a function computes after a rewrite of its graph, and how many of its nodes were rewritten."""
    tensors = [tf.TensorSpec(array.shape, array.dtype) for array in arrays]
    concrete = tf.function(function, autograph=False).get_concrete_function(*tensors)
    message = concrete.function_def
    count = rewrite(message)
    graph = tf.compat.v1.GraphDef(versions=concrete.graph.as_graph_def().versions)
    graph.library.function.append(message)
    with tf.Graph().as_default() as outer:
        placeholders = [tf.compat.v1.placeholder(array.dtype, array.shape) for array in arrays]
        tf.graph_util.import_graph_def(graph, name="")
        results = tf.raw_ops.PartitionedCall(
            args=placeholders, Tout=[each.dtype for each in concrete.outputs], f=named(message.signature.name)
        )
        with tf.compat.v1.Session(graph=outer) as session:
            return session.run(results, dict(zip(placeholders, arrays, strict=True))), count


def named(name):
    from tensorflow.core.framework import attr_value_pb2

    return attr_value_pb2.NameAttrList(name=name)
