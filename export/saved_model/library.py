"""Name of the SavedModel format, and the library that runs it."""

from keras_transformer.export.runtime.libraries import Library

NAME = "saved_model"
LIBRARY = Library("tensorflow", "tensorflow")
