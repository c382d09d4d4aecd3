"""What tests share; README.md says which builder to use for what."""
