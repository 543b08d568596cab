#!/usr/bin/env bash
# A kind cluster with KubeVirt and CDI, its nodes labelled as four hosts in two zones.
set -euo pipefail

name=guestcluster
kubevirt=${KUBEVIRT_VERSION:-v1.8.0}
cdi=${CDI_VERSION:-v1.64.0}
export KUBECONFIG=$HOME/.kube/kind-$name

kind create cluster --name "$name" --kubeconfig "$KUBECONFIG" --config - <<'CONFIG'
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
  - role: control-plane
  - {role: worker, labels: {topology.kubernetes.io/zone: zone-a}}
  - {role: worker, labels: {topology.kubernetes.io/zone: zone-a}}
  - {role: worker, labels: {topology.kubernetes.io/zone: zone-b}}
  - {role: worker, labels: {topology.kubernetes.io/zone: zone-b}}
# Pinned CPUs need the static CPU manager on every host, with some CPUs kept for the host itself.
kubeadmConfigPatches:
  - |
    kind: KubeletConfiguration
    cpuManagerPolicy: static
    reservedSystemCPUs: "0"
CONFIG

kubectl apply -f "https://github.com/kubevirt/kubevirt/releases/download/$kubevirt/kubevirt-operator.yaml"
kubectl apply -f - <<'KUBEVIRT'
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt, namespace: kubevirt}
spec:
  configuration:
    developerConfiguration:
      featureGates: [CPUManager]
      # Only where /dev/kvm is missing is emulation used.
      useEmulation: true
KUBEVIRT
kubectl apply -f "https://github.com/kubevirt/containerized-data-importer/releases/download/$cdi/cdi-operator.yaml"
kubectl apply -f "https://github.com/kubevirt/containerized-data-importer/releases/download/$cdi/cdi-cr.yaml"

kubectl -n kubevirt wait kubevirt/kubevirt --for=condition=Available --timeout=15m
kubectl -n cdi wait cdi/cdi --for=condition=Available --timeout=10m
echo "up; export KUBECONFIG=$KUBECONFIG"
