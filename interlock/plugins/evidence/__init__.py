"""What work leaves behind beside its outcome: large values, artifacts and logs, kept as bytes."""
