#!/bin/sh
# A job script with a time limit of its own. Nothing about memory; the exit code 124 is the limit's.
timeout 1.5 "$1" "$(dirname "$0")/trains_on.py"
code=$?
echo "training ended with $code" >&2
exit "$code"
