// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
)

// verifyMost bounds the bytes that are verified.
const verifyMost = 64 << 10

// pattern returns the bytes that a measurement writes: all of them differ from those of another one.
func pattern(token control.Token, n int64) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(token))).Read(p) // never fails
	return p
}

// compare reads the beginning of the memory by CPU, and compares it.
func compare(b *gpurdma.Buffer, want []byte, step string) *control.Fault {
	got := make([]byte, len(want))
	if _, err := b.ReadAt(got, 0); err != nil {
		return &control.Fault{Cause: control.Memory, Step: step, Text: control.Text("the CPU cannot read the memory: " + err.Error())}
	}
	if bytes.Equal(got, want) {
		return nil
	}
	wrong, at := 0, -1
	for i := range want {
		if got[i] != want[i] {
			wrong++
			if at < 0 {
				at = i
			}
		}
	}
	return &control.Fault{
		Cause: control.Corrupt, Step: step,
		Text: fmt.Sprintf("%d of %d bytes are wrong; the first one, at %d, is 0x%02x, not 0x%02x", wrong, len(want), at, got[at], want[at]),
	}
}

// encode makes a message of a verdict: "{}" if there is none.
func encode(f *control.Fault) []byte {
	data, _ := json.Marshal(struct { // it has strings only
		Fault *control.Fault `json:"fault,omitempty"`
	}{f})
	return data
}

// decode reads such a message.
func decode(data []byte) *control.Fault {
	var v struct {
		Fault *control.Fault `json:"fault"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return &control.Fault{Cause: control.Other, Step: "read the verdict of the other side", Text: control.Text(err.Error())}
	}
	return v.Fault
}
