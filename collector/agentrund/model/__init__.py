"""The vocabulary every stage shares: events, records, run state, errors. Standard library types only."""
