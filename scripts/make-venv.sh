#!/bin/sh
# Make a virtual environment with pip in the directory $1, with the interpreter $PYTHON.
set -eu
venv=$1
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Halimede needs Python 3.11 or later, and $python is $("$python" --version 2>&1): make PYTHON=python3.12 …" >&2
    exit 1
}
# Debian keeps `ensurepip`, which venv needs, in a package of its own.
"$python" -c 'import ensurepip, venv' 2>/dev/null || scripts/install-debian-package.sh python3-venv
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --upgrade 'pip>=23'
