"""Export specs of the tasks of KerasHub that generate text."""
