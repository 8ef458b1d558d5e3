"""From a decision to the operations of a JSON patch (RFC 6902)."""
