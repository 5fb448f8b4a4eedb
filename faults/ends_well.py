"""Does nothing wrong."""

print("trained")
