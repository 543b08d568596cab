// Package cdicrds keeps the API types of KubeVirt's Containerized Data Importer among the requirements of this
// module, so that controller-gen can write their CustomResourceDefinitions: the importer's own module, which
// carries them ready made, is not published.
package cdicrds

import _ "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1" // The types.
