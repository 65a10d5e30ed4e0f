"""The only writer: journals, blobs, links, index, intake, lock, recovery of torn files."""
