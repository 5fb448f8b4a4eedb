"""An ordinary mistake. The words of its message sound like memory, and are not."""

print("step 0: memory 0.4 of 11.7 GiB", flush=True)
raise ValueError("expected 1024 features in memory bank, found 512")
