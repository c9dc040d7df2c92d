"""Queries of ended leases: how each ended, and of which attempt it was."""

OLD_LEASE = """
SELECT until, ended_at FROM lease WHERE unit = :unit AND tenant = :tenant AND secret = :secret ORDER BY id DESC LIMIT 1
"""
LEASE_HOPS = """
SELECT attempt, lease_to FROM event
WHERE unit = :unit AND tenant = :tenant AND fence = :fence AND lease_to IS NOT NULL ORDER BY version
"""
