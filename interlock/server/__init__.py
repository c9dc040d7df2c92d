"""Everything over the wire: the HTTP API, who may use it, and how it is started safely."""
