// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"io"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/internal/bytesize"
)

// Server is what the server says of itself.
type Server struct {
	Spec string `json:"spec"` // the name of the server's memory
	NIC  string `json:"nic"`  // the name of the server's NIC
	Size int64  `json:"size"` // the bytes of the server's memory
	Path string `json:"path"` // how its NIC reaches the memory; as that of "local"
	Why  string `json:"why"`  // the reason of that path, in words
}

// WriteSides writes what the two sides of a connection are, and what it goes over. first is the way
// of the only rail.
func WriteSides(w io.Writer, local station.Side, addr string, remote Server, rails []link.Rail, first link.Way) error {
	if err := local.Text(w); err != nil {
		return err
	}
	remote.print(w, addr)
	return link.WriteRails(w, rails, first)
}

// print writes what the server's side is, in a line.
func (s *Server) print(w io.Writer, addr string) {
	fmt.Fprintf(w, "server:  %s, %s of %s with %s, %s\n", addr, bytesize.Format(s.Size), s.Spec, s.NIC, station.PathWords(s.Path, s.Why))
}
