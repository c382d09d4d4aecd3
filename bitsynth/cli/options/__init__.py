"""Every argument and option of the commands, once: its name, its values, its help."""
