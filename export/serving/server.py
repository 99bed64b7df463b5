"""The server of an application, and who may send requests to it, for users of the package."""

from keras_transformer.utils.http.access import Access as Access
from keras_transformer.utils.http.server import run_server as run_server
