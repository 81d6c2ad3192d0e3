"""What the clients, the agent and the service of this process are made of."""
