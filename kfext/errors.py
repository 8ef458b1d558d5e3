"""The errors of kfext.

KfextError
├── UserError              invalid user input; the message says what is allowed
│   ├── QuantityError      not a Kubernetes quantity
│   └── SettingError       a malformed setting: field, value, allowed values, an example
├── LeaseLost              the Lease was lost to another controller, or not renewed: end the process
└── ApiError               the API server refused, or could not be reached
    ├── BadRequest         400: the API server could not read the request
    ├── Unauthorized       401
    ├── Forbidden          403
    ├── NotFound           404
    │   └── NotServed      404 for a path, not an object: the API server does not serve it
    ├── Conflict           409: another client wrote first, or the object exists already
    ├── Gone               410: the resource version is too old; list again
    ├── Invalid            422: a failed `test` of a JSON patch, or a schema violation
    ├── TooManyRequests    429, with the seconds to wait
    ├── Unavailable        no connection, no answer in time, or 5xx
    ├── AnswerTooLarge     a response longer than the caller allows; its remainder was not read
    └── NotLeading         a write that was not sent, because this process may no longer lead
"""

_TRANSIENT = frozenset({401, 404, 408, 409, 410, 429})
"""HTTP statuses of requests that may succeed later, or with a newer version of the object."""


class KfextError(Exception):
    """Base of all errors that kfext raises on purpose."""


class UserError(KfextError):
    """Invalid user input; the message is for the user."""


class QuantityError(UserError):
    """A string that is not a Kubernetes quantity."""


class SettingError(UserError):
    """A malformed setting.

    `field`: the path of the field or annotation that was set.
    `value`: the value that is not allowed.
    `allowed`: the allowed values, in words.
    `example`: an allowed value.
    """

    def __init__(self, *, field: str, value: object, allowed: str, example: str) -> None:
        super().__init__(f"{field}: {value!r} is not allowed; allowed: {allowed}; e.g. {example}")
        self.field = field
        self.value = value
        self.allowed = allowed
        self.example = example


class LeaseLost(KfextError):  # noqa: N818 - an event as much as an error
    """The controller's Lease could not be renewed in time, or another controller holds it."""


class ApiError(KfextError):
    """The API server refused a request, or could not be reached.

    `status`: the HTTP status; 0 if there was no response.
    `reason`: the machine-readable reason of the Status object.
    `message`: the message of the Status object.
    """

    def __init__(self, *, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def final(self) -> bool:
        """Whether the API server would refuse the same request again."""
        refused = 400 <= self.status < 500 and self.status not in _TRANSIENT
        return refused or "request is too large" in self.message  # etcd; status 500


class BadRequest(ApiError):  # noqa: N818 - the API's own name, as for all errors below
    """HTTP status 400."""


class Unauthorized(ApiError):  # noqa: N818
    """HTTP status 401."""


class Forbidden(ApiError):  # noqa: N818
    """HTTP status 403."""


class NotFound(ApiError):  # noqa: N818
    """HTTP status 404."""


class NotServed(NotFound):
    """HTTP status 404 for a path, not an object: the API server has no such (sub)resource."""

    @property
    def final(self) -> bool:
        """Always true: only another version of the API server may serve the path."""
        return True


class Conflict(ApiError):  # noqa: N818
    """HTTP status 409."""


class Gone(ApiError):  # noqa: N818
    """HTTP status 410."""


class Invalid(ApiError):  # noqa: N818
    """HTTP status 422."""


class TooManyRequests(ApiError):  # noqa: N818
    """HTTP status 429; `retry_after`: the seconds to wait before a retry."""

    def __init__(self, *, status: int, reason: str, message: str, retry_after: float) -> None:
        super().__init__(status=status, reason=reason, message=message)
        self.retry_after = retry_after


class Unavailable(ApiError):  # noqa: N818
    """No connection, no response in time, or an HTTP status of 500 or above."""


class AnswerTooLarge(ApiError):  # noqa: N818
    """The response is longer than the caller allows."""


class NotLeading(ApiError):  # noqa: N818
    """The request was not sent, because another controller may lead by now."""
