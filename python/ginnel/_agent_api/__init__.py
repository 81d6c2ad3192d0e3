"""The clients of the agent API."""
