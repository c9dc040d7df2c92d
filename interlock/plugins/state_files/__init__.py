"""The state of workstreams as files, written from the feed of events; and archived trees brought back."""
