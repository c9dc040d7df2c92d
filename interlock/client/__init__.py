"""What programs import: an app with its tasks, jobs to wait for, and one way to send a command."""
