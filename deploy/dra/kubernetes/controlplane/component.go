// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// asComponent names the component that a process of the test binary becomes.
const asComponent = "GPURDMA_CONTROLPLANE"

// The components.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	schedulerName     = "kube-scheduler"
	controllerManager = "kube-controller-manager"
)

// commands are those of Kubernetes' own programs, which are made only in the process that runs one.
var commands = map[string]func() *cobra.Command{
	apiServer:         apiserver.NewAPIServerCommand,
	schedulerName:     func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	controllerManager: controllermanager.NewControllerManagerCommand,
}

// Main runs a component and ends the process, if [Start] has started the process for that. TestMain calls it first.
func Main() {
	name := os.Getenv(asComponent)
	if name == "" {
		return
	}
	go func() { // the component ends when the process that started it does
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if name == etcd {
		fmt.Fprintln(os.Stderr, "etcd:", runEtcd(os.Args[1:]))
		os.Exit(1)
	}
	command := commands[name]()
	command.SetArgs(os.Args[1:])
	os.Exit(cli.Run(command))
}
