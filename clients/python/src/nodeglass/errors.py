"""Exceptions: each message is a sentence that says what to do."""

from typing import Optional


class NodeglassError(Exception):
    """A request failed. The message is the relay's own sentence where it sent one."""

    def __init__(self, detail: str, status: Optional[int] = None) -> None:
        super().__init__(detail)
        self.detail = detail
        """What is wrong, and what to do about it."""
        self.status = status
        """The HTTP status, if the relay responded."""


class AuthenticationError(NodeglassError):
    """The key is wrong, its token was revoked, or the relay was restarted, which gives it a new key."""


class PermissionDeniedError(NodeglassError):
    """The key is known, but does not permit this: a share or token is read-only, or the share has ended."""


class NotFoundError(NodeglassError):
    """There is no such job, node or GPU, or the key does not show it."""


class RateLimitedError(NodeglassError):
    """Too many requests, although the client waited as the relay asked it to."""

    def __init__(self, detail: str, status: Optional[int] = None, retry_after_s: float = 1.0) -> None:
        super().__init__(detail, status)
        self.retry_after_s = retry_after_s
        """When to try again."""


class RelayUnavailableError(NodeglassError):
    """No relay is running, or it cannot be reached."""


class ProtocolError(NodeglassError):
    """The response is not understood: the relay is of another version, or something else listens there."""
