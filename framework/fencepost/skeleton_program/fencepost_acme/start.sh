#!/bin/sh
# Becomes the program. Many programs rewrite their configuration, so it is kept on the disk of the
# slot: the first process of a disk brings it, and later ones go on with what is there.
set -eu
[ -e "$DISK/acme.conf" ] || cp acme.conf "$DISK/acme.conf"
exec "$@" "$DISK/acme.conf"
