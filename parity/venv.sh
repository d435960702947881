# Sourced by run scripts, from the repository's root, with $requirements naming a requirements file:
# creates the virtual environment .venv if there is none, installs what the file pins, and sets $python.
python=.venv/bin/python
python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
	{ echo "Python 3.11 or later with its venv module is needed (Debian: apt-get install python3-venv)" >&2; exit 1; }
[ -x $python ] || python3 -m venv .venv
stamp=.venv/$(echo "$requirements" | tr / .)
if ! cmp -s "$requirements" "$stamp"; then
	echo "installing $requirements into .venv (once)" >&2
	$python -m pip install --quiet --disable-pip-version-check -r "$requirements" >&2
	cp "$requirements" "$stamp"
fi
