// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/verify"
)

// sums is the sums that a work sends with its note. A nil one sends none.
type sums struct {
	mode    verify.Mode
	late    bool   // they are made when the work begins
	made    bool   // trailer is set, or no block was chosen
	trailer []byte // until it is in the letter
}

// left reports whether the sums have still to be made.
func (s *sums) left() bool { return s != nil && !s.made }

// SetNote sets the note that follows a write's bytes, and says which of them are summed. The memory must
// have been added before. p must not change until the completion.
func (o *Work) SetNote(q *Queue, p []byte, mode verify.Mode) error {
	if mode == verify.None || o.Length == 0 {
		return o.SetMessage(q, p)
	}
	l, err := q.mail.Summed(o.Kind.String(), p)
	if err == nil {
		o.letter = l
		o.setSums(sums{mode: mode})
	}
	return err
}

// HasSums gives a work the trailer that Request.Sums has made, nil if no block was chosen.
func (o *Work) HasSums(trailer []byte) { o.setSums(sums{made: true, trailer: trailer}) }

func (o *Work) setSums(s sums) {
	o.ownSums = s
	o.sums = &o.ownSums
}

// SumLate makes the sums when the work begins, not when it is posted.
func (o *Work) SumLate() {
	if o.sums != nil {
		o.sums.late = true
	}
}

// SumsLate reports whether the bytes can be read only when the work begins: a source is not ready, or
// an operation before it, which the work follows, may change the bytes.
func (o *Work) SumsLate() bool {
	return o.sums != nil && o.sums.late || o.Flags&operation.FlagFence != 0 || len(o.Ready()) > 0
}

// sumNow makes the sums of a work that is posted, unless they are made late, or in the goroutine that
// stages the bytes.
func (o *Work) sumNow() error {
	if !o.sums.left() || o.SumsLate() || o.Staged() {
		return nil
	}
	return o.sum()
}

// sum makes the sums. It takes long.
func (o *Work) sum() error {
	trailer, err := o.Sums(o.sums.mode)
	if err == nil {
		o.sums.made, o.sums.trailer = true, trailer
	}
	return err
}
