// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"

	"github.com/gpurdma/gpurdma/deploy/dra/kubernetes/controlplane"
)

// logs is a directory with the files of the control plane and all that the tests log. It stays if a test fails.
var logs string

func TestMain(m *testing.M) {
	controlplane.Main()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if logs, err = os.MkdirTemp("", "test-kubernetes-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	log, err := os.Create(filepath.Join(logs, "test.log"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer log.Close()
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	klog.SetOutput(log)
	status := m.Run()
	for _, p := range planes {
		if p.cluster == nil {
			continue
		}
		if err := p.cluster.Check(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
		p.cluster.Stop()
	}
	if status != 0 {
		fmt.Fprintln(os.Stderr, "the logs are in", logs)
		return status
	}
	if err := os.RemoveAll(logs); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return status
}
