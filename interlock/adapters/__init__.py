"""Libraries of agents made durable: each model call and each tool call is a recorded step; a module per library."""
