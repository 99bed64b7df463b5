"""Feature maps of linear attention, which take the place of softmax."""
