// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// The statuses of a run are the exit statuses of the command.
func TestStatusesOfARun(t *testing.T) {
	for status, exit := range map[int]int{result.StatusGood: cli.ExitOK, result.StatusBad: cli.ExitFailed, result.StatusUnread: cli.ExitUsage, result.StatusUnknown: cli.ExitUnavailable} {
		if status != exit {
			t.Errorf("%d of a run, %d of the command", status, exit)
		}
	}
}
