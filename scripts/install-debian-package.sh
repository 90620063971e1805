#!/bin/sh
# Install the Debian package $1, or say what to type.
set -eu
package=$1

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "This needs the package $package: on Debian and Ubuntu, sudo apt-get install $package" >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
