"""Archives of transcripts, re-budgeted row by row: what fits stays as it was, what does not is trimmed."""
