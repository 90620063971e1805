#!/bin/sh
# See that the command $1 is there; the Debian package $2 brings it.
set -eu
command -v "$1" >/dev/null || exec "$(dirname "$0")/install-debian-package.sh" "$2"
