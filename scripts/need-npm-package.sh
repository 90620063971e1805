#!/bin/sh
# See that the program $2 of the npm package $1 (name@version) is in build/npm/node_modules/.bin, or the file $2 of it
# in build/npm/node_modules.
set -eu
cd "$(dirname "$0")/.."
[ -x "build/npm/node_modules/.bin/$2" ] && exit
[ -f "build/npm/node_modules/$2" ] && exit
scripts/need-debian-package.sh npm npm
mkdir -p build/npm
npm install --silent --no-audit --no-fund --prefix build/npm "$1"
