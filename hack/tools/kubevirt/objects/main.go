// Command objects prints the objects that KubeVirt's operator would install.
//
// KubeVirt ships them as Go functions only. The local infrastructure has no virt-operator: it applies what this
// program prints, with the certificate authority and the port under which its own virt-api listens.
//
// Each call prints one JSON List, which kubectl and any JSON parser read:
//
//	objects [-namespace NAME] crds|rbac|priority-class
//	objects [-namespace NAME] -ca FILE -port PORT webhooks|api-services
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

// endpoint is where the API server reaches virt-api.
type endpoint struct {
	namespace string
	caBundle  []byte
	port      int32
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "objects:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("objects", flag.ContinueOnError)
	namespace := flags.String("namespace", "kubevirt", "namespace of KubeVirt's own objects")
	ca := flags.String("ca", "", "PEM file of the authority that signed virt-api's serving certificate")
	port := flags.Int("port", 443, "port of the virt-api Service")
	if err := flags.Parse(args); err != nil {
		return err
	}
	at := endpoint{namespace: *namespace, port: int32(*port)}
	if *ca != "" {
		bundle, err := os.ReadFile(*ca)
		if err != nil {
			return err
		}
		at.caBundle = bundle
	}
	objects, err := collect(flags.Arg(0), at)
	if err != nil {
		return err
	}
	return printList(out, objects)
}

// collect returns the objects of one kind.
func collect(kind string, at endpoint) ([]any, error) {
	switch kind {
	case "crds":
		return definitions()
	case "rbac":
		return permissions(at.namespace), nil
	case "priority-class":
		return []any{components.NewKubeVirtPriorityClassCR()}, nil
	case "webhooks":
		return webhooks(at), nil
	case "api-services":
		return apiServices(at), nil
	default:
		return nil, fmt.Errorf("unknown kind %q: say crds, rbac, priority-class, webhooks or api-services", kind)
	}
}

func definitions() ([]any, error) {
	constructors := []func() (*apiextensionsv1.CustomResourceDefinition, error){
		components.NewKubeVirtCrd,
		components.NewMigrationPolicyCrd,
		components.NewPresetCrd,
		components.NewReplicaSetCrd,
		components.NewVirtualMachineBackupCrd,
		components.NewVirtualMachineBackupTrackerCrd,
		components.NewVirtualMachineCloneCrd,
		components.NewVirtualMachineClusterInstancetypeCrd,
		components.NewVirtualMachineClusterPreferenceCrd,
		components.NewVirtualMachineCrd,
		components.NewVirtualMachineExportCrd,
		components.NewVirtualMachineInstanceCrd,
		components.NewVirtualMachineInstanceMigrationCrd,
		components.NewVirtualMachineInstancetypeCrd,
		components.NewVirtualMachinePoolCrd,
		components.NewVirtualMachinePreferenceCrd,
		components.NewVirtualMachineRestoreCrd,
		components.NewVirtualMachineSnapshotContentCrd,
		components.NewVirtualMachineSnapshotCrd,
	}
	crds := make([]any, 0, len(constructors))
	for _, construct := range constructors {
		crd, err := construct()
		if err != nil {
			return nil, err
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// permissions are the accounts, roles and bindings with which KubeVirt's components run in production.
func permissions(namespace string) []any {
	var objects []any
	for _, group := range [][]runtime.Object{
		rbac.GetAllCluster(),
		rbac.GetAllApiServer(namespace),
		rbac.GetAllController(namespace, true),
		rbac.GetAllHandler(namespace),
	} {
		for _, object := range group {
			objects = append(objects, object)
		}
	}
	return objects
}

func webhooks(at endpoint) []any {
	mutating := components.NewVirtAPIMutatingWebhookConfiguration(at.namespace)
	launcher := components.NewVirtLauncherPodMutatingWebhookConfiguration(at.namespace)
	validating := components.NewVirtAPIValidatingWebhookConfiguration(at.namespace)
	for i := range mutating.Webhooks {
		at.point(&mutating.Webhooks[i].ClientConfig)
	}
	for i := range launcher.Webhooks {
		at.point(&launcher.Webhooks[i].ClientConfig)
	}
	for i := range validating.Webhooks {
		at.point(&validating.Webhooks[i].ClientConfig)
	}
	return []any{mutating, launcher, validating}
}

// point makes a webhook call virt-api at the endpoint.
func (at endpoint) point(client *admissionv1.WebhookClientConfig) {
	client.CABundle = at.caBundle
	if client.Service != nil {
		client.Service.Port = &at.port
	}
}

func apiServices(at endpoint) []any {
	var objects []any
	for _, service := range components.NewVirtAPIAPIServices(at.namespace) {
		service.Spec.CABundle = at.caBundle
		service.Spec.Service.Port = &at.port
		objects = append(objects, service)
	}
	return objects
}

// printList writes the objects as one List, without the empty status that Go types carry and the API refuses to be told.
func printList(out io.Writer, objects []any) error {
	items := make([]map[string]any, 0, len(objects))
	for _, object := range objects {
		text, err := json.Marshal(object)
		if err != nil {
			return err
		}
		item := map[string]any{}
		if err := json.Unmarshal(text, &item); err != nil {
			return err
		}
		delete(item, "status")
		items = append(items, item)
	}
	return json.NewEncoder(out).Encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}
