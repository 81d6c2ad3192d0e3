"""How objects look in a notebook, at a prompt and in logs."""
