#!/bin/sh
# Run the property tests ($1 is pytest) again and again for $2 minutes, each round with examples of its own.
set -eu
end=$(($(date +%s) + $2 * 60))
round=0
while [ "$(date +%s)" -lt "$end" ]; do
    round=$((round + 1))
    echo "round $round, $(((end - $(date +%s)) / 60)) minutes left"
    "$1" -m hypothesis --hypothesis-seed="$round" -q
done
