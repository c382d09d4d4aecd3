"""The one door to Z3, the budget of a query, and systems of constraints."""
