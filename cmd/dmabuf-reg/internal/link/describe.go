// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/human"
)

// Rail is a rail of a connection, and what this side has done over it, as a result says it.
type Rail struct {
	NIC  string `json:"nic"`        // the name of this side's NIC
	Port int    `json:"port"`       // the number of the port of this side's NIC; 0 if the rail was not made
	GID  string `json:"gid"`        // this side's GID as an address; "" if the rail was not made
	Peer string `json:"peer_gid"`   // the other side's GID as an address; "" if the rail was not made
	Why  string `json:"why"`        // why this port and GID were taken
	Up   bool   `json:"up"`         // the rail has a link
	Slow bool   `json:"slow"`       // the rail is slower than half of its highest rate
	Lost int    `json:"lost_links"` // how many links were lost and replaced
	// Rate is the rate while the rail was busy; 0 if it was not measured, and with one NIC.
	Rate float64 `json:"bytes_per_s"`
	// Operations is how many operations this side has carried out over the rail, messages included.
	// Each part of a large operation counts.
	Operations uint64 `json:"operations"`
	Failed     uint64 `json:"failed"`  // how many parts of operations have failed
	Repeats    uint64 `json:"repeats"` // how many parts of operations were begun again on another link
	Bytes      int64  `json:"bytes"`   // the bytes that this side has moved over the rail, messages included
	Error      string `json:"error"`   // why the rail has no link; "" if it has one
}

// Rails describes the rails of a connection; none if there is no connection.
func Rails(l Link) []Rail {
	list, err := l.Now()
	docs := []Rail{}
	if err != nil {
		return docs
	}
	for _, r := range list {
		d := Rail{
			NIC: r.Path.NIC, Port: r.Path.Port, GID: addrText(r.Path.GID), Peer: addrText(r.Path.Peer), Why: r.Path.Why, Up: r.Up, Slow: r.Slow, Lost: r.Lost,
			Rate: r.Rate, Operations: r.Counts.Done(), Failed: r.Counts.Failed, Repeats: r.Counts.Repeats, Bytes: r.Counts.Bytes,
		}
		if r.Err != nil {
			d.Error = r.Err.Error()
		}
		docs = append(docs, d)
	}
	return docs
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// state describes the rail's state in words.
func (d *Rail) state() string {
	switch {
	case d.Error != "":
		return "down: " + d.Error
	case !d.Up:
		return "down: its port is down"
	case d.Slow:
		return "up, slower than half of its best"
	}
	return "up"
}

// WriteRails writes what a connection goes over: a line for one NIC, a table for several.
func WriteRails(w io.Writer, list []Rail, first Way) error {
	if len(list) < 2 {
		first.write(w)
		return nil
	}
	rows := [][]string{{"RAIL", "NIC", "PORT", "GID", "PEER", "RATE", "BYTES", "ERRORS", "LOST LINKS", "STATE"}}
	for i, d := range list {
		rows = append(rows, []string{
			strconv.Itoa(i), d.NIC, strconv.Itoa(d.Port), d.GID, d.Peer, human.Rate(d.Rate), app.Approximately(d.Bytes),
			strconv.FormatUint(d.Failed, 10), strconv.Itoa(d.Lost), d.state(),
		})
	}
	fmt.Fprintln(w)
	return app.Table(w, rows, nil, "no rails", "GID", "PORT")
}

// RailsText says what this side has done over each of several rails, "" over one.
func RailsText(l Link) (text string) {
	list := Rails(l)
	if len(list) < 2 {
		return ""
	}
	for i, d := range list {
		text += fmt.Sprintf("; rail %d, %s: %d bytes, %s lost", i, d.NIC, d.Bytes, human.Plural(d.Lost, "link"))
	}
	return text
}

// Way is what a connection goes over, as a result says it.
type Way struct {
	Port int    `json:"port"`     // the number of the port of this side's NIC
	GID  string `json:"gid"`      // this side's GID as an address
	Peer string `json:"peer_gid"` // the server's GID as an address
	Why  string `json:"why"`      // why this port and GID were taken
	text string
}

// FirstWay is what a connection goes over: of several rails the first.
func FirstWay(l Link) (Way, error) {
	list, err := l.Now()
	if err != nil {
		return Way{}, err
	}
	return WayOf(list[0].Path), nil
}

// WayOf describes the path of a connection.
func WayOf(c engine.ConnPath) Way {
	return Way{Port: c.Port, GID: c.GID.String(), Peer: c.Peer.String(), Why: c.Why, text: c.String()}
}

func (o *Way) write(w io.Writer) { fmt.Fprintf(w, "over:    %s\n", o.text) }
