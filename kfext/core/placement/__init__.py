"""Where every pod of a gang goes: the solver."""
