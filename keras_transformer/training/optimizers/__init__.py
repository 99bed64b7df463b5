"""AdamW in one pass and with rates by layer, learning-rate schedules, rates by width, and averaged weights."""
