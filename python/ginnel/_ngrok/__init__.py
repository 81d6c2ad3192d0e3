"""What launchers of `ginnel compat ngrok` start."""
