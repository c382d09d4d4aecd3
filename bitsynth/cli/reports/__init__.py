"""Tables and pages that commands print and write."""
