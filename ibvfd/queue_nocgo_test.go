// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package ibvfd

import (
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

func (q *scriptCQ) Queue() (*libibverbs.CompletionQueue, error) {
	return &libibverbs.CompletionQueue{}, nil
}
func (q *scriptSRQ) Queue() (*libibverbs.RecvQueue, error) { return &libibverbs.RecvQueue{}, nil }
func (q *scriptQP) Queues() (*libibverbs.SendQueue, *libibverbs.RecvQueue, error) {
	return &libibverbs.SendQueue{}, &libibverbs.RecvQueue{}, nil
}

func TestNotBuilt(t *testing.T) {
	if _, err := Open("roce0"); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("Open: %v, want ErrNotBuilt", err)
	}
	if Version() == "" {
		t.Error("Version says nothing")
	}
}
