// SPDX-License-Identifier: Apache-2.0

package uevent

import (
	"context"
	"time"
)

// A driver that is loaded sends many messages. They count as one change: quiet after the last of them, and most
// after the first one.
const (
	quiet = time.Second
	most  = 10 * time.Second
)

// settle calls change once for the events that come near each other, until the context ends.
func settle(ctx context.Context, events <-chan struct{}, quiet, most time.Duration, change func()) {
	for {
		select {
		case <-events:
		case <-ctx.Done():
			return
		}
		end := time.After(most)
		for pending := true; pending; {
			select {
			case <-events:
			case <-time.After(quiet):
				pending = false
			case <-end:
				pending = false
			case <-ctx.Done():
				return
			}
		}
		change()
	}
}
