"""Shell commands as jobs and steps: what they say, who may submit them, and which workers get them."""
