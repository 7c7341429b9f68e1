#!/bin/sh
# Becomes the program. Many programs rewrite their configuration, so it is kept on the disk of the
# slot: the first process of a disk brings it, and later ones go on with what is there. The disk may
# be copied to another slot (`duplicate_id`): pass addresses on the command line, or replace them here.
set -eu
[ -e "$DISK/acme.conf" ] || cp acme.conf "$DISK/acme.conf"
exec "$@" "$DISK/acme.conf"
