#!/bin/sh
# Makes this machine a node, once: bootstrap init|join
set -eu
. /usr/local/lib/guestcluster/console

verb=$1
state=/var/lib/guestcluster
config=/run/kubeadm/kubeadm.yaml
log=/var/log/guestcluster-bootstrap.log
step='preparing the machine'

# The last lines of kubeadm's output. It prints no keys; whatever has the form of a token, of a
# certificate key or of a digest is taken out all the same.
tell_output() {
    [ -s "$log" ] || return 0
    tail -n 20 "$log" | tr -cd '\11\12\40-\176' | cut -c 1-400 |
        sed -E -e 's/[a-z0-9]{6}\.[a-z0-9]{16}/<token>/g' -e 's/[0-9a-f]{64}/<digest>/g' |
        while IFS= read -r line; do say "| $line"; done
}

finish() {
    status=$?
    trap - EXIT
    rm -f "$config"
    if [ "$status" -ne 0 ]; then
        tell_output
        say "bootstrap failed: $step"
    fi
    exit "$status"
}

# cloud-init runs this again for a new instance id on an old disk: kubeadm must not.
if [ -e "$state/started" ]; then
    rm -f "$config"
    exec /bin/sh /usr/local/lib/guestcluster/restart
fi
trap finish EXIT
mkdir -p "$state"
: >"$state/started"
(umask 077 && : >"$log")

systemctl daemon-reload
systemctl enable guestcluster-restart.service kubelet.service

# What kubeadm and pod networks need of the kernel. Where it cannot be set from here it may be
# set already; if not, kubeadm's own checks say so.
modprobe br_netfilter 2>/dev/null || true
sysctl -e -q -p /etc/sysctl.d/99-guestcluster.conf 2>/dev/null || true

if [ -e /etc/systemd/system/guestcluster-address.service ]; then
    step='setting the address of the machine'
    systemctl enable --now guestcluster-address.service
fi
if [ -e /etc/systemd/system/guestcluster-etcd-disk.service ]; then
    step='mounting the etcd disk'
    systemctl enable --now guestcluster-etcd-disk.service
fi

step="kubeadm $verb"
say "$step started"
if [ "$verb" = init ]; then
    set -- --skip-token-print --skip-certificate-key-print
else
    set --
fi
kubeadm "$verb" --config "$config" "$@" >>"$log" 2>&1

# Until now the kubelet of a control-plane machine has asked an API server that was not there, the
# machine's own, and asks ever more seldom: started anew, it asks at once. `kubeadm init` does so
# itself.
if [ "$verb" = join ] && [ -e /etc/kubernetes/manifests/kube-apiserver.yaml ]; then
    systemctl restart --no-block kubelet.service
fi

: >"$state/succeeded"
mark_success
say 'bootstrap succeeded'
