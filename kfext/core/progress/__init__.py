"""How far a job is and how it goes, from the lines that it prints."""
