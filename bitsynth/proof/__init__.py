"""A kernel becomes a proved one: checked, its obligations discharged by Z3 or held by a rule."""
