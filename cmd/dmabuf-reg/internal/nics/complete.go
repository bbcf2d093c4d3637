// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/options"
)

// Complete lets the shell complete the --nic of a command that takes one NIC. extra are the words
// that the command takes beside auto and names.
func Complete(cmd *cobra.Command, extra ...string) {
	options.Complete(cmd, "nic", func() []string { return append(append([]string{"auto"}, extra...), deviceNames()...) })
}

// CompleteSeveral lets the shell complete --nic, with further names after a comma.
func CompleteSeveral(cmd *cobra.Command) {
	if err := cmd.RegisterFlagCompletionFunc("nic", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return nicWords(typed, deviceNames()), cobra.ShellCompDirectiveNoFileComp
	}); err != nil {
		panic(err) // there is no such flag
	}
}

// nicWords are the values of --nic that what was typed may become.
func nicWords(typed string, names []string) []string {
	at := strings.LastIndex(typed, ",") + 1
	if at == 0 {
		return append([]string{"auto"}, names...)
	}
	var list []string
	before := strings.Split(typed[:at-1], ",")
	for _, name := range names {
		if !slices.Contains(before, name) {
			list = append(list, typed[:at]+name)
		}
	}
	return list
}
