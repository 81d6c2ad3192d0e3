"""Results as tables of other libraries."""
