#!/bin/sh
# install.sh VENV PYTHON LOCK: make VENV if it is missing, install exactly what LOCK pins, and both projects by path.
# Only wheels whose hash is in the lock are installed, so no package runs code of its own while it is installed.
set -eu
venv=$1 python=$2 lock=$3

stop() { printf '%s\n' "$*" >&2; exit 1; }

if [ ! -x "$venv/bin/python" ]; then
    command -v "$python" >/dev/null 2>&1 || stop "No $python here. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        stop "Plimsoll needs Python 3.11 or newer, and $python is $("$python" -V 2>&1). Name another: make PYTHON=python3.11"
    # A Python may come without ensurepip (Debian splits it off); then pip is borrowed from outside, if there is one.
    rm -rf "$venv"
    if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
        rm -rf "$venv"
        if ! "$python" -m pip --version >/dev/null 2>&1 || ! "$python" -m venv --without-pip "$venv"; then
            rm -rf "$venv"
            stop "$python can make no virtual environment with pip. On Debian or Ubuntu: apt-get install python3-venv"
        fi
    fi
fi

pip() {
    if "$venv/bin/python" -c 'import pip' 2>/dev/null; then
        PIP_DISABLE_PIP_VERSION_CHECK=1 "$venv/bin/python" -m pip "$@"
    else
        PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip --python "$venv/bin/python" "$@"
    fi
}

printf 'Installing %s into %s\n' "$lock" "$venv"
pip install --quiet --require-hashes --no-deps --only-binary :all: -r "$lock"
pip install --quiet --no-build-isolation --no-deps --editable . --editable clients/python
