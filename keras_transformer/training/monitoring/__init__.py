"""Finding what goes wrong in a training: wrong data, NaN, spikes of the loss, unused experts, gradients, learning rates."""
