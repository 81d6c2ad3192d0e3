"""What `ginnel.testing` is made of."""
