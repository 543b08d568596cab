#!/bin/sh
# Says at every boot but the first what became of the first.
set -eu
. /usr/local/lib/guestcluster/console

state=/var/lib/guestcluster

# An interrupted machine is not stopped here: its etcd may be a voting member already, and then
# the guest needs it to keep its quorum until the member is removed.
if [ -e "$state/succeeded" ]; then
    if [ -e /etc/systemd/system/guestcluster-etcd-disk.service ] && ! mountpoint -q /var/lib/etcd; then
        say 'bootstrap failed: mounting the etcd disk'
        exit 1
    fi
    mark_success
    say 'machine restarted'
elif [ -e "$state/started" ]; then
    say 'bootstrap failed: the first boot was interrupted'
    exit 1
else
    say 'bootstrap failed: this machine has joined before, but its disk is new'
    exit 1
fi
