#!/usr/bin/env bash
# Can a guest's authorities be exchanged by replacing machines alone, without losing a request?
#
#   usage: ca-rotation.sh FOLDER     as root; FOLDER holds kubeadm, kubectl, etcd, etcdctl,
#                                    kube-apiserver and kube-controller-manager
#
# Shows, with real programs, three rollouts of a control plane of two machines. Each machine is a
# network namespace with an /etc/kubernetes of its own, and runs what kubeadm wrote for it:
#   trust   machines 3 and 4: both generations are trusted, the old one signs
#   sign    machines 5 and 6: both are trusted, the new one signs
#   drop    machines 7 and 8: the new one alone
# A successor joins before its predecessor goes, while five requests a second, a new connection
# each, half of them writes, go to the machines in turn. Each claim is a line with "ok" or "FAIL";
# the exit code is 1 if one failed. There is no kubelet: this script starts the manifests and adds
# etcd's members. Takes two to three minutes on two cores and is ended after eight. It leaves nothing:
# all of it lives in namespaces that end with it. KEEP=/FOLDER keeps the logs; CROSS=no leaves out
# the cross-signed certificate, and the claims about it fail.

# shellcheck disable=SC2016,SC2086,SC2329 # inner shells expand; words are split, and called through others
set -euo pipefail

if [ "${1:-}" != --inside ]; then
    [ $# = 1 ] && [ -x "$1/kubeadm" ] || { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2; }
    exec timeout -s KILL 480 unshare --net --mount --pid --fork --kill-child --mount-proc \
        bash "$0" --inside "$(realpath "$1")"
fi
PATH=$2:$PATH
run=/run/ca endpoint=192.0.2.1 root=old failed=0
for folder in /run /var/lib; do mount -t tmpfs tmpfs $folder; done
mkdir -p $run/etc /run/netns
cp -a /etc/. $run/etc && mount --bind $run/etc /etc && mkdir -p /etc/kubernetes
cd $run
keep() { [ -z "${KEEP:-}" ] || cp -r ./*.log probes [mw]? "$KEEP"; }
trap keep EXIT
version=$(kubeadm version -o short)
ip link set lo up
ip link add br0 type bridge && ip addr add $endpoint/24 dev br0 && ip link set br0 up
nft 'add table ip ca; add chain ip ca out { type nat hook output priority -100; }'

# --- small words --------------------------------------------------------------------------------
check() { local result='ok  '; "${@:2}" >>checks.log 2>&1 || { result=FAIL failed=1; }; echo "$result  $1"; }
fails() { ! "$@"; }
is() { [ "$("${@:2}")" = "$1" ]; }
each() { local generation; for generation in old new; do "${@//GEN/$generation}" || return 1; done; }
within() { local end=$((SECONDS + $1)); until "${@:2}" >>within.log 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.5; done; }
phase() { echo "$2" >identities; sleep 2; echo "$1" >phase; echo "== $1 (at ${SECONDS}s)"; } # NAME IDENTITIES
address() { echo "192.0.2.1${1#m}"; }
view() { unshare --mount sh -c 'mount --bind "$0" /etc/kubernetes; exec "$@"' $run/"$1" "${@:2}"; }
is_signed_by() { openssl verify -partial_chain -CAfile "$1/ca.crt" "$2"; } # GENERATION CERTIFICATE
key_and_request() { openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$1.key" -out "$1.csr"; }
client() { # NAME SUBJECT AUTHORITY: a client's key and certificate
    key_and_request "$1" "$2"
    openssl x509 -req -in "$1.csr" -CA "$3.crt" -CAkey "$3.key" -days 1 -out "$1.crt" -extfile <(echo extendedKeyUsage=clientAuth); }
api() { kubectl --server "https://${at:-$endpoint}:6443" --certificate-authority both.crt \
    --client-certificate cert-$root.crt --client-key cert-$root.key "$@"; }
call() { # IDENTITY PATH [CURL'S ARGUMENTS]: prints the HTTP status
    local trust=both.crt name=$1 as
    case $1 in
        token-*) as=(-H "Authorization: Bearer $(cat "$1")") ;;
        pinned-*) trust=${1#pinned-}/ca.crt name=cert-${1#pinned-} ;;& # trusts its own authority alone
        *) as=(--cert "$name.crt" --key "$name.key") ;;
    esac
    curl -s -m 2 -o /dev/null -w '%{http_code}' --cacert "$trust" "${as[@]}" "${@:3}" "https://${at:-$endpoint}:6443$2"; }
answers() { is "$2" call "$1" "${3:-/api/v1/namespaces/default}"; }
member() { etcdctl --endpoints "https://$(address "$1"):2379" --cacert "$1/pki/etcd/ca.crt" \
    --cert "$1/pki/etcd/healthcheck-client.crt" --key "$1/pki/etcd/healthcheck-client.key" "${@:2}"; }

# --- what the operator writes -------------------------------------------------------------------
material() { # MACHINE SIGNING [TRUSTED]: the authorities on a machine, the one that signs first
    local name generation; mkdir -p "$1/pki/etcd"
    for name in ca.crt etcd/ca.crt front-proxy-ca.crt sa.pub; do
        for generation in "${@:2}"; do cat "$generation/$name"; done >"$1/pki/$name"
    done
    for name in ca.key etcd/ca.key front-proxy-ca.key sa.key; do cp "$2/$name" "$1/pki/$name"; done
    cp "$2/ca.crt" "$1/pki/signer.crt"; }
configuration() { # MACHINE [FOLDER OF CERTIFICATES [ARGUMENTS OF THE CONTROLLER MANAGER]]
    cat <<CONFIG
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: abcdef.0123456789abcdef}]
localAPIEndpoint: {advertiseAddress: $(address "$1")}
nodeRegistration: {name: $1, criSocket: unix:///run/none.sock}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: $version
certificatesDir: ${2:-/etc/kubernetes/pki}
controlPlaneEndpoint: $endpoint:6443
encryptionAlgorithm: ECDSA-P256
networking: {serviceSubnet: 198.51.100.0/24}
etcd: {local: {dataDir: /etc/kubernetes/etcd}}
controllerManager: {extraArgs: [${3:-}]}
CONFIG
}
init() { view "$1" kubeadm init phase "${@:3}" --config <(configuration "$1" '' "$2") >>"$1-kubeadm.log" 2>&1; }
join() { # MACHINE GENERATION [TIMEOUT]: the part of a join that needs no kubelet, pinning an authority
    local hash part=kubelet-start role='' # a worker's
    [ ! -e "$1/pki/ca.key" ] || { part='control-plane-prepare all'
        role="controlPlane: {localAPIEndpoint: {advertiseAddress: $(address "$1")}}"; }
    hash=$(openssl x509 -in "$2/ca.crt" -pubkey -noout | openssl pkey -pubin -outform der | sha256sum)
    view "$1" kubeadm join phase $part --config /dev/stdin >>"$1-kubeadm.log" 2>&1 <<CONFIG
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {bootstrapToken: {apiServerEndpoint: "$endpoint:6443", token: abcdef.0123456789abcdef, caCertHashes: ["sha256:${hash%% *}"]}}
nodeRegistration: {name: $1, criSocket: unix:///run/none.sock}
timeouts: {discovery: ${3:-60s}}
$role
CONFIG
}
admin_conf() { # MACHINE: its admin.conf by the new authority, which trusts both, written before kubeadm runs
    kubeadm kubeconfig user --client-name kubernetes-admin --org kubeadm:cluster-admins \
        --config <(configuration "$1" $run/new) >"$1/admin.conf" 2>>"$1-kubeadm.log"
    kubectl --kubeconfig "$1/admin.conf" config set-cluster kubernetes --embed-certs \
        --certificate-authority <(cat {new,old}/ca.crt) >/dev/null; }
cross_sign() { [ "${CROSS:-}" = no ] || # the new authority's certificate by the old one, behind what a machine shows
    tee -a "$1"/pki/apiserver{,-kubelet-client}.crt <cross.crt >/dev/null; }
authorities_in() { kubectl --kubeconfig "$1" config view --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d | grep -c BEGIN; }
info() { api -n kube-public get configmap cluster-info -o jsonpath='{.data.kubeconfig}' >info.conf; authorities_in info.conf; }
tell_joins() { info >/dev/null # AUTHORITIES: what cluster-info says; the controller manager signs it anew
    jq -n --rawfile text <(sed "s|authority-data: .*|authority-data: $(base64 -w0 "$1")|" info.conf) '{data: {kubeconfig: $text}}' >info.json
    api -n kube-public patch configmap cluster-info --type merge --patch-file info.json >/dev/null; }

# --- machines come and go -----------------------------------------------------------------------
start() { # MACHINE PROGRAM [ARGUMENTS]: with kubeadm's arguments before these
    mapfile -t arguments < <(sed -n 's/^    - \(--.*\)$/\1/p' "$1/manifests/$2.yaml")
    (exec ip netns exec "$1" unshare --uts sh -c 'hostname "${0##*/}"; mount --bind "$0" /etc/kubernetes; exec "$@"' \
        $run/"$1" "$2" "${arguments[@]}" "${@:3}") >>"$1-$2.log" 2>&1 &
    echo $! >"$1/$2.pid"; }
stop() { local pid; pid=$(cat "$1/$2.pid"); kill "$pid"; wait "$pid" 2>/dev/null || true; }
serve() { # MACHINE...: the endpoint leads to these, each connection to a random one
    local n=0 map='' m; for m; do map+="${map:+, }$n : $(address "$m")"; n=$((n + 1)); done
    nft "flush chain ip ca out; add rule ip ca out ip daddr $endpoint tcp dport 6443 dnat to numgen random mod $n map { $map }"; }
wire() { ip netns add "$1"; ip link add "$1" type veth peer name eth0 netns "$1"; ip link set "$1" master br0 up
    ip -n "$1" addr add "$(address "$1")/24" dev eth0; ip -n "$1" link set eth0 up; ip -n "$1" link set lo up; }
is_ready() { is 200 curl -s -m 2 -o /dev/null -w '%{http_code}' -k "https://$(address "$1"):6443/readyz"; }
id_of() { member "$1" endpoint status | cut -d, -f2 | tr -d ' '; }
grow() { # MACHINE MEMBER: a prepared machine becomes a member beside another, and serves
    local peers id; wire "$1"; init "$1" '' etcd local
    within 30 member "$2" member add "$1" --learner --peer-urls "https://$(address "$1"):2380"
    peers=$(member "$2" member list | awk -F', ' -v m="$1" '{ printf "%s%s=%s", c, ($3 == "" ? m : $3), $4; c = "," }')
    start "$1" etcd --initial-cluster "$peers" --initial-cluster-state existing
    id=$(member "$2" member list | awk -F', ' '$6 == "true" { print $1 }')
    within 60 member "$2" member promote "$id"
    start "$1" kube-apiserver; within 90 is_ready "$1"; start "$1" kube-controller-manager; }
replace() { # PREDECESSOR SUCCESSOR OTHER: leaves the endpoint, then etcd
    local id; id=$(id_of "$1"); serve "$1" "$2" "$3"; sleep 2; serve "$2" "$3"; sleep 2
    member "$1" move-leader "$(id_of "$2")" >>within.log 2>&1 || true # refused where another one leads
    stop "$1" kube-controller-manager; stop "$1" kube-apiserver
    within 30 member "$2" member remove "$id"; stop "$1" etcd; ip netns del "$1"; }
prober() { local n=0 who code rc patch now next=${EPOCHREALTIME/./}
    while :; do for who in $(<identities); do
        n=$((n + 1)) code=0 rc=0 patch=(-X PATCH -H 'Content-Type: application/merge-patch+json' -d "{\"data\":{\"n\":\"$n\"}}")
        [ $((n / 2 % 2)) = 0 ] || patch=()
        code=$(call "$who" /api/v1/namespaces/default/configmaps/probe "${patch[@]}") || rc=$?
        echo "$(cat phase) $who $rc $code" >>probes
        now=${EPOCHREALTIME/./} next=$((next + 200000)); [ $next -gt $now ] || next=$now
        sleep "$(printf '0.%06d' $((next - now)))"
    done; done; }
# Refused: curl's 35, 56 or 60, or HTTP's 401. Any other answer than 200: nobody was there in time.
tell_probes() { awk -v phase="$1" '$1 == phase { n[$2]++; if ($4 != 200) { if ($3 ~ /35|56|60/ || $4 == 401) r[$2]++; else o[$2]++ } }
    END { for (w in n) printf "      %-10s %4d requests, %d refused, %d unanswered\n", w, n[w], r[w], o[w] }' probes | sort; }
none_lost() { ! awk -v phase="$1" '$1 == phase && $4 != 200' probes | grep .; }

# --- what is asked of them ----------------------------------------------------------------------
issue() { # NAME SIGNER SUBJECT: has the controller manager sign a request
    key_and_request "$1" "$3" 2>>openssl.log
    jq -n --arg name "$1" --arg signer "kubernetes.io/$2" --arg csr "$(base64 -w0 "$1.csr")" '{apiVersion: "certificates.k8s.io/v1",
        kind: "CertificateSigningRequest", metadata: {$name}, spec: {request: $csr, signerName: $signer, usages: ["digital signature", "client auth"]}}' | api create -f -
    api certificate approve "$1"; within 60 issued "$1"; } >>checks.log
issued() { api get csr "$1" -o jsonpath='{.status.certificate}' | base64 -d >"$1.crt" && [ -s "$1.crt" ]; }
kept() { api get secret probe -o jsonpath='{.data.token}' | base64 -d >token-kept && [ -s token-kept ]; }
keys() { api get --raw /openid/v1/jwks | jq '.keys | length'; }
published() { api get configmap kube-root-ca.crt -o jsonpath='{.data.ca\.crt}' | grep -c BEGIN; }
extension() { api -n kube-system get configmap extension-apiserver-authentication -o json | jq -r '.data[]' | grep -c BEGIN; }
believed() { curl -s -m 5 --cacert both.crt --cert "proxy-$1.crt" --key "proxy-$1.key" -H 'X-Remote-User: alice' -H 'Content-Type: application/json' \
    -d '{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}' \
    https://$endpoint:6443/apis/authentication.k8s.io/v1/selfsubjectreviews | grep '"username": "alice"'; }
member_lets_in() { etcdctl --endpoints "https://$(address "$1"):2379" --cacert both-etcd.crt --cert "etcd-$2.crt" --key "etcd-$2.key" endpoint health; }
is_stranger() { kubectl --kubeconfig "$1" get namespaces 2>&1 | tee -a checks.log | grep -c 'signed by unknown authority' || true; }

echo "== before: $version, $(etcd --version | head -n 1)"
for g in old new; do
    for part in ca etcd-ca front-proxy-ca sa; do kubeadm init phase certs $part --config <(configuration m0 $run/$g); done
    client cert-$g /O=system:masters/CN=user $g/ca
    client proxy-$g /CN=front-proxy-client $g/front-proxy-ca
    client etcd-$g /CN=etcd $g/etcd/ca
done >>openssl.log 2>&1
cat {old,new}/ca.crt >both.crt; cat {old,new}/etcd/ca.crt >both-etcd.crt
openssl x509 -in new/ca.crt -CA old/ca.crt -CAkey old/ca.key -days 1 -out cross.crt 2>>openssl.log
cat cert-new.crt cross.crt >cert-crossed.crt; cp cert-new.key cert-crossed.key
material m9 old new; init m9 '' certs apiserver; init m9 '' kubeconfig admin
check "with two certificates in ca.crt kubeadm signs with the first" is_signed_by old m9/pki/apiserver.crt
check "the kubeconfigs that it writes trust the first alone" is 1 authorities_in m9/admin.conf
rm m9/pki/apiserver.*; material m9 new old; cp old/ca.key m9/pki/ca.key
check "with the key of the second it refuses to sign" fails init m9 '' certs apiserver
rm -r m9; material m1 old; wire m1; serve m1
for part in "certs all" "kubeconfig all" "control-plane all" "etcd local"; do init m1 '' $part; done
start m1 etcd; start m1 kube-apiserver; within 90 is_ready m1
start m1 kube-controller-manager --leader-elect=false --cluster-signing-cert-file=$run/both.crt
check "with a bundle as its signer kube-controller-manager ends" within 60 fails kill -0 "$(cat m1/kube-controller-manager.pid)"
check "because of two certificates" grep 'expected 1 certificate, found 2' m1-kube-controller-manager.log
of() { echo "--cluster-signing-$1-cert-file=$run/$2/ca.crt" "--cluster-signing-$1-key-file=$run/$2/ca.key"; }
# shellcheck disable=SC2046 # two arguments each
start m1 kube-controller-manager --leader-elect=false --cluster-signing-{cert,key}-file= $(of kubelet-client old) $(of kube-apiserver-client new)
issue node-old kube-apiserver-client-kubelet /O=system:nodes/CN=system:node:worker; issue user kube-apiserver-client /CN=user
check "with flags of their own one signer uses the old authority" is_signed_by old node-old.crt
check "and another the new one" is_signed_by new user.crt
stop m1 kube-controller-manager; start m1 kube-controller-manager
for part in "upload-config kubeadm" "upload-config kubelet" bootstrap-token; do
    init m1 '' $part --kubeconfig /etc/kubernetes/super-admin.conf || [ "$part" = "upload-config kubelet" ] # wants a Node at its end
done
{
    api create configmap probe; api create serviceaccount probe
    api create clusterrolebinding probe --clusterrole cluster-admin --serviceaccount default:probe
    jq -n '{apiVersion: "v1", kind: "Secret", type: "kubernetes.io/service-account-token",
        metadata: {name: "probe", annotations: {"kubernetes.io/service-account.name": "probe"}}}' | api create -f -
} >>checks.log
api create token probe --duration 6h >token-old; within 60 kept
check "kubeadm's cluster-info holds one authority" is 1 info
material m9 old
check "until it holds both, a join that pins the new one is refused" fails join m9 new 3s
material m2 old; within 60 join m2 old; grow m2 m1; serve m1 m2
check "a client of the new authority is let in if it shows the cross-signed certificate" answers cert-crossed 200
check "and not else" answers cert-new 401

phase trust "cert-old token-old pinned-old"; prober & prober=$!
init m1 '{name: cluster-signing-cert-file, value: /etc/kubernetes/pki/signer.crt}' upload-config kubeadm --kubeconfig /etc/kubernetes/super-admin.conf
tell_joins both.crt; rm -r m9; material m9 old new
check "a join may pin either" each within 30 join m9 GEN 3s
mkdir w1; join w1 old
check "a worker's kubelet lets in both authorities" is 2 grep -c BEGIN w1/pki/ca.crt
check "and trusts both" is 2 authorities_in w1/bootstrap-kubelet.conf
for m in m3 m4; do material $m old new; join $m old; done
grow m3 m2; replace m1 m3 m2
grow m4 m3; replace m2 m4 m3
issue trust kube-apiserver-client-kubelet /O=system:nodes/CN=system:node:worker
check "beside a bundle, a file with the signing authority alone serves the signer" is_signed_by old trust.crt
check "kube-root-ca.crt holds both (--root-ca-file)" within 60 is 2 published
check "clients of both are let in (--client-ca-file)" each answers cert-GEN 200
check "front proxies of both are believed (--requestheader-client-ca-file)" each believed GEN
check "etcd clients of both are let in (--trusted-ca-file)" each member_lets_in m3 GEN
check "both keys of service accounts are published (two keys in sa.pub)" is 2 keys
check "no request was lost" none_lost trust; tell_probes trust

phase sign "cert-old cert-new token-old pinned-old"
material m5 new old; join m5 new
check "kubeadm signs with the new authority" is_signed_by new m5/pki/apiserver.crt
check "the admin.conf that it writes does not reach the machines before it: the join would end here" is 1 is_stranger m5/admin.conf
rm -r m5; for m in m5 m6; do material $m new old; admin_conf $m; join $m new; cross_sign $m; done
check "kubeadm keeps certificates with a cross-signed one behind them" join m5 new
check "one with both authorities, written beforehand, is kept by the join" is 2 authorities_in m5/admin.conf
check "and reaches them" kubectl --kubeconfig m5/admin.conf get --raw /api
grow m5 m4
check "members of both authorities are peers (--peer-trusted-ca-file)" each member_lets_in m5 GEN
at=$(address m5) api create token probe --duration 6h >token-new
at=$(address m4) check "a token of the new key is taken by a machine that signs with the old" answers token-new 200
issue mixed kube-apiserver-client-kubelet /O=system:nodes/CN=system:node:mixed
check "while a former controller manager leads, kubelets still get certificates of the old authority" is_signed_by old mixed.crt
echo "cert-old cert-new token-old token-new pinned-old" >identities
replace m3 m5 m4
grow m6 m5; replace m4 m6 m5
issue node-new kube-apiserver-client-kubelet /O=system:nodes/CN=system:node:worker
check "afterwards of the new one" is_signed_by new node-new.crt
check "kubelets of both are let in" each answers node-GEN 200 /api
check "who trusts the old authority alone is served, through the cross-signed certificate" answers pinned-old 200
check "so is a program in Go" kubectl --server https://$endpoint:6443 --certificate-authority old/ca.crt --token "$(cat token-old)" get --raw /api
cp token-kept token-before; kept
check "a token in a Secret stays that of the old key" cmp token-kept token-before
check "no request was lost" none_lost sign; tell_probes sign

root=new; phase drop "cert-new token-new pinned-new"
tell_joins new/ca.crt
for m in m7 m8; do material $m new; within 30 join $m new 5s; done
grow m7 m6; replace m5 m7 m6
grow m8 m7; replace m6 m8 m7
check "kube-root-ca.crt holds the new one alone" within 60 is 1 published
check "a client of the old one is refused" answers cert-old 401
check "and a kubelet" answers node-old 401 /api
check "and a front proxy" fails believed old
check "and an etcd client" fails member_lets_in m7 old
check "and a token of the old key" answers token-old 401
check "and one that was kept in a Secret" answers token-kept 401
api patch secret probe --type json -p '[{"op": "remove", "path": "/data/token"}]' >>checks.log; within 30 kept
check "which is made anew once it is taken out" answers token-kept 200
check "extension-apiserver-authentication still holds all four authorities" is 4 extension
api -n kube-system delete configmap extension-apiserver-authentication >>checks.log
check "once deleted it comes back with the two new ones" within 90 is 2 extension
check "who trusts the old authority alone is lost" is 000 call pinned-old /api
check "no request was lost" none_lost drop; tell_probes drop
kill $prober
echo "took ${SECONDS}s"
exit $failed
