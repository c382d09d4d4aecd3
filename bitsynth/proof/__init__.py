"""The way from a kernel to a proved one: checked, its obligations discharged by Z3 or held by a rule."""
