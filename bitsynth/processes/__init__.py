"""Other processes: started here alone, supervised, and ended with us."""
