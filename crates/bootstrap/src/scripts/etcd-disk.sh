#!/bin/sh
# Mounts the disk with the serial `etcd` where etcd keeps its data, at every boot.
set -eu
. /usr/local/lib/guestcluster/console

device=/dev/disk/by-id/virtio-etcd
target=/var/lib/etcd

# Whoever needs the disk says that it failed; this says why.
fail() {
    say "| etcd disk: $1"
    exit 1
}

if mountpoint -q "$target"; then
    exit 0
fi

waited=0
until [ -b "$device" ]; do
    [ "$waited" -lt 60 ] || fail "$device did not appear within 60 s"
    waited=$((waited + 1))
    sleep 1
done

# blkid ends with 2 if it finds nothing, with something else if it is not sure: only the first
# may be formatted, and never once this machine has had an etcd member on it.
found=0
blkid -p "$device" >/dev/null || found=$?
if [ "$found" -eq 2 ]; then
    [ ! -e /etc/kubernetes/manifests/etcd.yaml ] ||
        fail 'it is empty, although this machine has an etcd member'
    mkfs.ext4 -q -L etcd "$device" || fail 'it cannot be formatted'
elif [ "$found" -ne 0 ]; then
    fail "its content is unclear (blkid ended with $found)"
fi

mkdir -p "$target"
mount -o noatime "$device" "$target" || fail 'it cannot be mounted'
# kubeadm wants an empty directory, etcd one that no one else can read.
[ -d "$target/member" ] || rmdir "$target/lost+found" 2>/dev/null || true
chmod 0700 "$target"
