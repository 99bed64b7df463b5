"""The layers within a layer, in the order in which they were made or stand in the graph."""


def layers_in_order(layer):
    """All layers within `layer`, at any depth, each before its own parts and once.

    Keras's own list turns the parts of each nested layer around: there the last block of a backbone within a model comes
    first.

    Args:
        layer: a `keras.layers.Layer` or `keras.Model`, which is not among them.

    Returns:
        list of `keras.layers.Layer`.
    """
    found = {}
    _collect(layer, found)
    return list(found.values())


def _collect(layer, found):
    for part in layer._layers:
        if id(part) not in found:
            found[id(part)] = part
            _collect(part, found)
