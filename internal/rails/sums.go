// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"github.com/gpurdma/gpurdma/internal/verify"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Sums is the sums that an operation sends with its notification.
type Sums struct {
	Mode    verify.Mode
	made    bool
	trailer []byte // nil if no block was chosen
}

// make makes the sums when the operation is posted. w has all of its memory. If the bytes cannot be
// read yet, the work that carries all of them makes the sums when it begins.
func (s *Sums) make(w *workqueue.Work) (err error) {
	if s.Mode == verify.None || w.Length == 0 || w.SumsLate() {
		return nil
	}
	s.trailer, err = w.Request.Sums(s.Mode)
	s.made = err == nil
	return err
}

// give gives the sums to the work that has the notification.
func (s *Sums) give(w *workqueue.Work) {
	if s.made {
		w.HasSums(s.trailer)
	} else {
		w.SumLate()
	}
}
