#!/bin/sh
# Run the tests of each directory in a process of its own, as some frameworks crash each other in one process. Two
# processes run at a time; what one has written comes in one piece, once it has ended. Some of whole servers run a
# second time, with two front ends; `make test-front-ends` runs those of Python models so, which takes minutes.
#
# If no more than two directories fail, each is run again at the end, with the machine to itself, and must pass then: a
# stall of the machine does not fail a run of thirty minutes. The output says so. A test that needs this is to be mended.
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
    run=$1
    shift
    status=0
    {
        echo "== $title"
        "$@" "$directory"/test_*.py || status=$?
    } >"$log" 2>&1
    [ $status != 5 ] || status=0 # each of its modules is skipped
    [ $status = 0 ] || echo "$run" >>"$LOGS/failed"
    flock "$LOGS" cat "$log"
    exit $status
' sh '{}' "$@" || status=$?
[ -e "$LOGS/failed" ] && [ $status = 123 ] || exit $status # 123: all were run, and some failed
sed 's/ 1$//; s/^/== FAILED: /' "$LOGS/failed"
[ "$(wc -l <"$LOGS/failed")" -le 2 ] || exit $status
status=0
while read -r directory front_ends; do
    echo "== AGAIN: $directory with $front_ends front ends"
    if TEST_FRONT_ENDS=$front_ends "$@" "$directory"/test_*.py </dev/null; then
        echo "== FAILED ONCE, PASSED ALONE: $directory"
    else
        echo "== FAILED TWICE: $directory"
        status=1
    fi
done <"$LOGS/failed"
exit $status
