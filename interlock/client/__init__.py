"""What programs use: an app with its tasks, jobs that can be waited for, and one way to send a command."""
