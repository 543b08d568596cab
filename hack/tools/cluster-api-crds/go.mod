module guestcluster.dev/hack/tools/cluster-api-crds

go 1.26.0

// Nothing is built from it: its CustomResourceDefinitions are read.
require sigs.k8s.io/cluster-api v1.14.2
