"""Times as the API writes them, RFC 3339 in UTC, and as seconds since the epoch."""

from datetime import UTC, datetime

from kfext.model.tolerant import text


def timestamp(value: object) -> float:
    """Return an RFC 3339 time as seconds since the epoch; 0.0 for anything else."""
    try:
        return datetime.fromisoformat(text(value)).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def written_time(wall: float) -> str:
    """Return seconds since the epoch as the API writes a Time: whole seconds, rounded down."""
    return _written(wall, "seconds")


def written_micro_time(wall: float) -> str:
    """Return seconds since the epoch as the API writes a MicroTime."""
    return _written(wall, "microseconds")


def _written(wall: float, precision: str) -> str:
    moment = datetime.fromtimestamp(wall, UTC).isoformat(timespec=precision)
    return moment.removesuffix("+00:00") + "Z"
