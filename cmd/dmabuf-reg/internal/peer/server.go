// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"io"

	"github.com/gpurdma/gpurdma/internal/bytesize"
)

// Server is what the server says of itself.
type Server struct {
	Spec   string `json:"spec"`
	NIC    string `json:"nic"`
	Size   int64  `json:"size"`
	Staged bool   `json:"staged"`
	Why    string `json:"why"` // the path and its reason, in words
}

// Print says what the server's side is, in a line.
func (s *Server) Print(w io.Writer, addr string) {
	fmt.Fprintf(w, "server:  %s, %s of %s with %s, %s\n", addr, bytesize.Format(s.Size), s.Spec, s.NIC, s.Why)
}
