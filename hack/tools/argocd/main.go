// Command argocd-health runs a health check as Argo CD does: with Argo CD's own Lua runner, its
// sandbox and its list of valid answers. It reads an object in JSON and prints its health in JSON.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/argoproj/argo-cd/v3/util/lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: argocd-health SCRIPT < OBJECT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file string, in io.Reader, out io.Writer) error {
	script, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var object unstructured.Unstructured
	if err := json.NewDecoder(in).Decode(&object.Object); err != nil {
		return fmt.Errorf("read the object: %w", err)
	}
	runner := lua.VM{}
	health, err := runner.ExecuteHealthLua(&object, string(script))
	if err != nil {
		return fmt.Errorf("run %s: %w", file, err)
	}
	return json.NewEncoder(out).Encode(health)
}
