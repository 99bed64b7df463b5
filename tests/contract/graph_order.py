"""The order that a graph of TensorFlow imposes on its operations."""


def ancestors(operation):
    """Returns the names of an operation and of those that run before it, by data or by control dependencies."""
    found, waiting = set(), [operation]
    while waiting:
        node = waiting.pop()
        if node.name not in found:
            found.add(node.name)
            waiting += [*node.control_inputs, *(x.op for x in node.inputs)]
    return found
