"""Every argument and option of the commands, declared once: name, values and help."""
