#!/bin/sh
# import.sh STORE ARCHIVE BIN: unpacks every image of an OCI archive into a new containerd root folder.
# Runs in mount and process namespaces of its own: the socket, the state and whatever stays mounted vanish with them.
set -eu
store=$1 archive=$2
PATH=$3:$PATH

mount -t tmpfs tmpfs /run
cat > /run/config.toml <<CONFIG
version = 3
root = '$store'
# It would look for its files on the host.
[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  conf_dir = '/run/cni'
[plugins.'io.containerd.internal.v1.opt']
  path = '/run/opt'
CONFIG
containerd --config /run/config.toml > /run/containerd.log 2>&1 &
containerd=$!
trap 'cat /run/containerd.log >&2' EXIT

tries=0
until ctr version > /dev/null 2>&1; do
	tries=$((tries + 1))
	[ "$tries" -lt 100 ]
	sleep 0.1
done
ctr --namespace k8s.io images import "$archive"
# The label by which the container runtime interface knows its own images: kubelet may count and remove them.
for image in $(ctr --namespace k8s.io images list --quiet | grep -v ^sha256:); do
	ctr --namespace k8s.io images label "$image" io.cri-containerd.image=managed
done
kill "$containerd"
wait "$containerd" || true
trap - EXIT
