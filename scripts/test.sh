#!/bin/sh
# Run the tests of each directory in a process of its own, as some frameworks crash each other in one process. Two
# processes run at a time; what one has written comes in one piece, once it has ended. Some of whole servers run a
# second time, with two front ends; `make test-front-ends` runs those of Python models so, which takes minutes.
set -eu
export RAY_AUTH_MODE=disabled # a token that another program of this user has left is none of these tests'
LOGS=$(mktemp -d)
export LOGS
trap 'rm -rf "$LOGS"' EXIT
status=0
{
    find tests -name 'test_*.py' -exec dirname {} + | sort -u | sed 's/$/ 1/'
    for directory in tests/cli tests/frontends/shared_memory; do echo "$directory 2"; done
} | xargs -P 2 -I '{}' sh -c '
    directory=${1% *}
    export TEST_FRONT_ENDS="${1#* }"
    title="$directory with $TEST_FRONT_ENDS front ends"
    [ "$TEST_FRONT_ENDS" != 1 ] || title=$directory
    log=$LOGS/$(echo "$title" | tr "/ " ..)
    shift
    status=0
    {
        echo "== $title"
        "$@" "$directory"/test_*.py || status=$?
    } >"$log" 2>&1
    [ $status != 5 ] || status=0 # each of its modules is skipped
    [ $status = 0 ] || echo "$title" >>"$LOGS/failed"
    flock "$LOGS" cat "$log"
    exit $status
' sh '{}' "$@" || status=$?
[ ! -e "$LOGS/failed" ] || sed "s/^/== FAILED: /" "$LOGS/failed"
exit $status
