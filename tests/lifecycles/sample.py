"""A small sound lifecycle of a user's own, for tests to spoil."""

PARCEL = """\
name = "parcel"
about = "A parcel that a courier carries."

[budget]
attempts = 2

[lease]
ttl = "60s"
beat = "10s"

[states]
waiting   = { category = "waiting", deadline = "none", deadline_why = "It waits for its sender." }
packed    = { category = "ready" }
carried   = { category = "active", deadline = "time_out", within = "8h" }
checked   = { category = "gate", deadline = "parent", cancel = "refused", cancel_why = "It has arrived." }
delivered = { category = "success" }
returned  = { category = "failure" }
stopped   = { category = "cancelled" }

[birth]
submit = { to = "waiting", owner = "person" }

[moves.waiting]
ready  = "packed"
cancel = { to = "stopped", owner = "person" }

[moves.packed]
claim  = "carried"
cancel = { to = "stopped", owner = "person" }

[moves.carried]
complete = { to = "checked", owner = "holder" }
fail     = { to = "returned", owner = "holder", severity = "error" }
retry    = { to = "packed", opens_attempt = true }
lost     = { to = "packed", opens_attempt = true }
exhaust  = "returned"
time_out = "returned"
cancel   = { to = "stopped", owner = "person" }

[moves.checked]
valid   = { to = "delivered", owner = "validator" }
invalid = { to = "returned", owner = "validator" }
"""
