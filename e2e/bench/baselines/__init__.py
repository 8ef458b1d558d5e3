"""Other systems' published algorithms, written again: what kfext is measured against."""
