"""The client that functions without a `client` argument share."""

import threading
from typing import Optional

from .client import Client

_lock = threading.Lock()
_client: Optional[Client] = None


def default_client() -> Client:
    """A client of the relay that `Client()` finds. It is looked for again until one is found."""
    global _client
    with _lock:
        if _client is None:
            _client = Client()
        return _client


def set_default_client(client: Optional[Client]) -> None:
    """Sets the client that functions without a `client` argument use; `None` to look for the relay again."""
    global _client
    with _lock:
        _client = client
