"""The offline checker of transition logs."""
