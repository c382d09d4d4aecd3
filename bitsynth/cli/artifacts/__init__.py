"""What the command line says about proved artifacts: a file a kind, with its page, its rows and its checks."""
