"""The local agent API: one module per resource, with its results and its two classes."""
