module guestcluster.dev/hack/tools/capk-crds

go 1.26.0

// Nothing is built from it: its CustomResourceDefinitions are read.
require sigs.k8s.io/cluster-api-provider-kubevirt v0.11.2
