// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package ibvfd

import (
	"errors"
	"testing"
)

func (q *scriptCQ) queue() (*completionQueue, error)        { return &completionQueue{}, nil }
func (q *scriptSRQ) queue() (*recvQueue, error)             { return &recvQueue{}, nil }
func (q *scriptQP) queues() (*sendQueue, *recvQueue, error) { return &sendQueue{}, &recvQueue{}, nil }

func TestNotBuilt(t *testing.T) {
	if _, err := Open("roce0"); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("Open: %v, want ErrNotBuilt", err)
	}
	if Version() == "" {
		t.Error("Version says nothing")
	}
}
