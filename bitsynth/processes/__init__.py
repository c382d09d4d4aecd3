"""Other processes: started only here, supervised, and killed when this process exits."""
