"""Captured requests and responses: their bodies, their fields, and their secrets."""
