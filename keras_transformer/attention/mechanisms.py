"""The mechanisms by name. To add one: its file, its line here, its case in tests/contract/cases.py."""

from keras_transformer.attention.local import LocalAttention
from keras_transformer.attention.softmax import SoftmaxAttention

MECHANISMS = {
    "softmax": SoftmaxAttention,
    "local": LocalAttention,
}
