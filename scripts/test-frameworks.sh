#!/bin/sh
# Run the tests of each framework in a process of its own: several of them in one process crash each other.
set -eu
status=0
for directory in tests/frameworks/*/; do
    [ -e "$directory/__init__.py" ] || continue
    echo "== $directory"
    "$@" "$directory" || status=$?
done
exit $status
