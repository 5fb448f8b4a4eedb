#!/bin/sh
# Writes the state in which a command starts, as the kernel shows it, and becomes the command.
place=$1
shift
# Read without a child: a shell blocks signals while it starts one.
while IFS= read -r line; do
  echo "$line"
done </proc/self/status >"$place/state"
cat "/proc/$$/stat" "/proc/$$/limits" >>"$place/state"
cat "/proc/$$/environ" >"$place/environ"
ls -l "/proc/$$/fd" >"$place/descriptors"
exec "$@"
